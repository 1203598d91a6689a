"""GPT-2 and the decoders of its time: layer norms with shifts, plain MLPs, biases."""

from cost_model.specs.architectures.fields import Fields, pointer_to
from cost_model.specs.architectures.grouped import Style, grouped_layer, key_value_heads
from cost_model.specs.architectures.stack import Position, Stack, architecture
from cost_model.specs.errors import SpecError
from cost_model.specs.model import Attention, Layer, Mlp


def plain_attention(
    c: Fields,
    hidden: int,
    heads: str,
    *,
    kv_heads: int | None = None,
    qkv_bias: bool = True,
    out_bias: bool = True,
    causal: bool = True,
    window: int | None = None,
) -> Attention:
    """Attention whose heads divide the hidden size."""
    count = c.integer(heads)
    if hidden % count:
        raise c.error(heads, f"must divide the hidden size ({hidden})")
    width = hidden // count
    return Attention(
        heads=count,
        kv_heads=kv_heads or count,
        head_dim=width,
        value_head_dim=width,
        qkv_bias=qkv_bias,
        out_bias=out_bias,
        causal=causal,
        window=window,
    )


def plain_layer(
    hidden: int,
    attention: Attention,
    intermediate: int,
    *,
    mlp_bias: bool = True,
    norm_vectors: int = 2,
    norms: int = 2,
    parallel: bool = False,
) -> Layer:
    """A layer with a plain MLP and layer norms."""
    style = Style(
        norm="layernorm", norm_vectors=norm_vectors, norms=norms, parallel_residual=parallel
    )
    mlp = Mlp(intermediate=intermediate, gated=False, bias=mlp_bias)
    return grouped_layer(style, hidden, attention, mlp)


def refuse_cross_attention(c: Fields) -> None:
    """Decoders that read an encoder are supported only as part of an encoder-decoder model."""
    if c.boolean("add_cross_attention"):
        raise c.error("add_cross_attention", "must be false: no encoder is described here")


@architecture("gpt2", "GPT2LMHeadModel")
def gpt2(c: Fields) -> Stack:
    """GPT-2, and GPT-3 (arXiv 2005.14165), which has its geometry."""
    refuse_cross_attention(c)
    hidden = c.integer("n_embd")
    attention = plain_attention(c, hidden, "n_head")
    return _learned(c, hidden, attention)


@architecture("gpt_bigcode", "GPTBigCodeForCausalLM")
def gpt_bigcode(c: Fields) -> Stack:
    """StarCoder and SantaCoder (arXiv 2305.06161): GPT-2 with one key-value head."""
    refuse_cross_attention(c)
    hidden = c.integer("n_embd")
    shared = 1 if c.boolean("multi_query") else None
    return _learned(c, hidden, plain_attention(c, hidden, "n_head", kv_heads=shared))


@architecture("openai-gpt", "OpenAIGPTLMHeadModel")
def openai_gpt(c: Fields) -> Stack:
    """GPT: norms after each sub-layer, none at the end."""
    hidden = c.integer("n_embd")
    attention = plain_attention(c, hidden, "n_head")
    return _learned(c, hidden, attention, final=False, activation="afn")


def _learned(
    c: Fields,
    hidden: int,
    attention: Attention,
    *,
    final: bool = True,
    activation: str = "activation_function",
) -> Stack:
    vocab = c.integer("vocab_size")
    positions = c.integer("n_positions")
    intermediate = c.integer("n_inner", null=4 * hidden)
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[plain_layer(hidden, attention, intermediate)] * c.layers("n_layer"),
        embedding_params=(vocab + positions) * hidden,
        final_params=2 * hidden * final,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=positions,
        norm="layernorm",
        position="learned",
        activation=c.text(activation, null="gelu"),
        dropout=c.number("resid_pdrop"),
    )


@architecture("gptj", "GPTJForCausalLM")
def gptj(c: Fields) -> Stack:
    """GPT-J 6B: attention and MLP in parallel behind one norm; the output matrix has a bias."""
    hidden = c.integer("n_embd")
    attention = plain_attention(c, hidden, "n_head", qkv_bias=False, out_bias=False)
    one = plain_layer(
        hidden, attention, c.integer("n_inner", null=4 * hidden), norms=1, parallel=True
    )
    vocab = c.integer("vocab_size")
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[one] * c.layers("n_layer"),
        embedding_params=vocab * hidden,
        final_params=2 * hidden,
        tied=c.boolean("tie_word_embeddings"),
        head_bias=True,
        max_seq_len=c.optional_integer("n_positions"),
        norm="layernorm",
        activation=c.text("activation_function"),
        dropout=c.number("resid_pdrop"),
    )


@architecture("codegen", "CodeGenForCausalLM")
def codegen(c: Fields) -> Stack:
    """CodeGen (arXiv 2203.13474): GPT-J's shape."""
    return gptj(c)


@architecture("gpt_neo", "GPTNeoForCausalLM")
def gpt_neo(c: Fields) -> Stack:
    """GPT-Neo: every other layer attends locally, as `attention_types` says."""
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    positions = c.integer("max_position_embeddings")
    count = c.layers("num_layers")
    intermediate = c.integer("intermediate_size", null=4 * hidden)
    layers = []
    for kind in _neo_kinds(c, count):
        window = c.integer("window_size") if kind == "local" else None
        attention = plain_attention(c, hidden, "num_heads", qkv_bias=False, window=window)
        layers.append(plain_layer(hidden, attention, intermediate))
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=layers,
        embedding_params=(vocab + positions) * hidden,
        final_params=2 * hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=positions,
        norm="layernorm",
        position="learned",
        activation=c.text("activation_function"),
        dropout=c.number("resid_dropout"),
    )


def _neo_kinds(c: Fields, layers: int) -> tuple[str, ...]:
    """`attention_types` is a list of [kinds, repeats]; global and local in turn by default."""
    value = c.value("attention_types")
    wanted = f"must be a list of [kinds, repeats] that makes {layers} layers of global and local"
    kinds: list[str] = []
    if value is None:
        value = [[["global", "local"], 12]]
    if not isinstance(value, (list, tuple)):
        raise c.error("attention_types", wanted)
    for i, item in enumerate(value):
        match item:
            case [[*names], int(times)] if 0 <= times <= layers and set(map(str, names)) <= {
                "global",
                "local",
            }:
                kinds += [str(name) for name in names] * times
            case _:
                raise SpecError(pointer_to(c.at("attention_types"), i), item, wanted)
    if len(kinds) != layers:
        raise SpecError(c.at("attention_types"), value, wanted)
    return tuple(kinds)


@architecture("opt", "OPTForCausalLM")
def opt(c: Fields) -> Stack:
    """OPT (arXiv 2205.01068): two spare positions; the smallest projects a narrow embedding."""
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    positions = c.integer("max_position_embeddings")
    embedded = c.integer("word_embed_proj_dim", null=hidden)
    bias = c.boolean("enable_bias")
    vectors = 2 if c.boolean("layer_norm_elementwise_affine") else 0
    attention = plain_attention(c, hidden, "num_attention_heads", qkv_bias=bias, out_bias=bias)
    one = plain_layer(hidden, attention, c.integer("ffn_dim"), mlp_bias=bias, norm_vectors=vectors)
    projection = hidden * embedded if embedded != hidden else 0
    final = c.boolean("do_layer_norm_before") and not c.boolean("_remove_final_layer_norm")
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[one] * c.layers(),
        embedding_params=vocab * embedded + (positions + 2) * hidden + projection,
        final_params=vectors * hidden * final + projection,
        tied=c.boolean("tie_word_embeddings"),
        head_width=embedded,
        max_seq_len=positions,
        norm="layernorm",
        position="learned",
        activation=c.text("activation_function"),
        dropout=c.number("dropout"),
    )


@architecture("bloom", "BloomForCausalLM")
def bloom(c: Fields) -> Stack:
    """BLOOM (arXiv 2211.05100): ALiBi, and a norm behind the embedding."""
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    one = plain_layer(hidden, plain_attention(c, hidden, "n_head"), 4 * hidden)
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[one] * c.layers("n_layer"),
        embedding_params=vocab * hidden + 2 * hidden,
        final_params=2 * hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=None,
        norm="layernorm",
        position="alibi",
        activation="gelu",
        dropout=c.number("hidden_dropout"),
    )


@architecture("mpt", "MptForCausalLM")
def mpt(c: Fields) -> Stack:
    """MPT: no biases, norms without shift, ALiBi; the class has an MLP of 4 x hidden, always."""
    hidden = c.integer("d_model")
    vocab = c.integer("vocab_size")
    attention = plain_attention(c, hidden, "n_heads", qkv_bias=False, out_bias=False)
    one = plain_layer(hidden, attention, 4 * hidden, mlp_bias=False, norm_vectors=1)
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[one] * c.layers("n_layers"),
        embedding_params=vocab * hidden,
        final_params=hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=None,
        norm="layernorm",
        position="alibi",
        activation="gelu",
        dropout=c.number("resid_pdrop"),
    )


@architecture("falcon", "FalconForCausalLM")
def falcon(c: Fields) -> Stack:
    """Falcon (arXiv 2311.16867): one key-value head, or groups in the newer architecture."""
    name = "n_embed" if c.given("n_embed") else "hidden_size"
    hidden = c.integer(name)
    vocab = c.integer("vocab_size")
    bias = c.boolean("bias")
    newer = c.boolean("new_decoder_architecture")
    heads = c.integer("num_attention_heads")
    kv_heads = heads
    if newer:
        kv_heads = key_value_heads(c, heads, "num_kv_heads")
    elif c.boolean("multi_query"):
        kv_heads = 1
    attention = plain_attention(
        c, hidden, "num_attention_heads", kv_heads=kv_heads, qkv_bias=bias, out_bias=bias
    )
    parallel = c.boolean("parallel_attn")
    # Two norms in parallel attention are the newer architecture's default alone.
    own_norms = c.integer("num_ln_in_parallel_attn", null=2 if newer else 1)
    norms = 2 if own_norms == 2 or not parallel else 1
    intermediate = c.integer("ffn_hidden_size", null=4 * hidden)
    one = plain_layer(
        hidden, attention, intermediate, mlp_bias=bias, norms=norms, parallel=parallel
    )
    alibi = c.boolean("alibi")
    position: Position = "alibi" if alibi else "rotary"
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[one] * c.layers(),
        embedding_params=vocab * hidden,
        final_params=2 * hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=None if alibi else c.optional_integer("max_position_embeddings"),
        norm="layernorm",
        position=position,
        activation=c.text("activation"),
        dropout=c.number("hidden_dropout"),
    )


@architecture("xglm", "XGLMForCausalLM")
def xglm(c: Fields) -> Stack:
    """XGLM (arXiv 2112.10668): sinusoidal positions, which are no parameters."""
    refuse_cross_attention(c)
    hidden = c.integer("d_model")
    vocab = c.integer("vocab_size")
    one = plain_layer(hidden, plain_attention(c, hidden, "attention_heads"), c.integer("ffn_dim"))
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[one] * c.layers("num_layers"),
        embedding_params=vocab * hidden,
        final_params=2 * hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=c.optional_integer("max_position_embeddings"),
        norm="layernorm",
        position="none",
        activation=c.text("activation_function"),
        dropout=c.number("dropout"),
    )


@architecture("biogpt", "BioGptForCausalLM")
def biogpt(c: Fields) -> Stack:
    """BioGPT: two spare positions."""
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    positions = c.integer("max_position_embeddings")
    attention = plain_attention(c, hidden, "num_attention_heads")
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[plain_layer(hidden, attention, c.integer("intermediate_size"))] * c.layers(),
        embedding_params=(vocab + positions + 2) * hidden,
        final_params=2 * hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=positions,
        norm="layernorm",
        position="learned",
        activation=c.text("hidden_act"),
        dropout=c.number("hidden_dropout_prob"),
    )


@architecture("ctrl", "CTRLLMHeadModel")
def ctrl(c: Fields) -> Stack:
    """CTRL (arXiv 1909.05858): sinusoidal positions; the output matrix has a bias."""
    hidden = c.integer("n_embd")
    vocab = c.integer("vocab_size")
    one = plain_layer(hidden, plain_attention(c, hidden, "n_head"), c.integer("dff"))
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[one] * c.layers("n_layer"),
        embedding_params=vocab * hidden,
        final_params=2 * hidden,
        tied=c.boolean("tie_word_embeddings"),
        head_bias=True,
        max_seq_len=c.optional_integer("n_positions"),
        norm="layernorm",
        position="none",
        activation="relu",
        dropout=c.number("resid_pdrop"),
    )
