"""Mixture-of-experts decoders with grouped-query attention."""

from dataclasses import replace

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.fields import Fields, pointer_to
from cost_model.specs.architectures.grouped import (
    Experts,
    ExpertsReader,
    Style,
    grouped_attention,
    grouped_decoder,
    grouped_layer,
    key_value_heads,
)
from cost_model.specs.architectures.llama import biased
from cost_model.specs.architectures.postnorm import exaone_windows
from cost_model.specs.architectures.stack import Stack, architecture
from cost_model.specs.architectures.weights import (
    NOTHING,
    Weights,
    attention_weights,
    layer,
    mlp_weights,
    moe_weights,
    vector,
    whole,
)
from cost_model.specs.errors import SpecError
from cost_model.specs.model import Attention, Mlp, Moe


def experts_of(
    c: Fields,
    *,
    experts: str = "num_local_experts",
    top_k: str = "num_experts_per_tok",
    width: str = "intermediate_size",
    gated: bool = True,
    bias: bool = False,
    shared: int = 0,
) -> Moe:
    """The experts of a layer, by the names of their fields; a token passes at most all of them."""
    count = c.integer(experts, maximum=2**20)
    chosen = c.integer(top_k)
    if chosen > count:
        raise c.error(top_k, f"must be at most the number of experts ({count})")
    return Moe(
        experts=count,
        top_k=chosen,
        intermediate=c.integer(width),
        gated=gated,
        bias=bias,
        shared_intermediate=shared,
    )


def sparse_layers(c: Fields, i: int) -> bool:
    """Whether layer i has experts: by `mlp_layer_types`, else from `first_k_dense_replace` on."""
    kinds = windows.layer_types(c, c.layers(), ("dense", "sparse"), "mlp_layer_types")
    if kinds is not None:
        return kinds[i] == "sparse"
    return i >= c.integer("first_k_dense_replace", null=0, minimum=0)


def routed_and_shared(c: Fields, i: int) -> Experts | None:
    """DeepSeek's naming: `n_routed_experts`, and `n_shared_experts` of the same width."""
    return _routed_and_shared(c) if sparse_layers(c, i) else None


def _routed_and_shared(c: Fields) -> Experts:
    width = c.integer("moe_intermediate_size")
    shared = c.integer("n_shared_experts", null=0, minimum=0) * width
    return Experts(
        experts_of(c, experts="n_routed_experts", width="moe_intermediate_size", shared=shared)
    )


def everywhere(**names: str) -> ExpertsReader:
    """Experts in every layer, by the names of their fields."""
    return lambda c, _: Experts(
        experts_of(
            c,
            experts=names.get("experts", "num_local_experts"),
            top_k=names.get("top_k", "num_experts_per_tok"),
            width=names.get("width", "intermediate_size"),
        )
    )


@architecture("mixtral", "MixtralForCausalLM")
def mixtral(c: Fields) -> Stack:
    """Mixtral (arXiv 2401.04088)."""
    return grouped_decoder(c, Style(), experts=everywhere(), windows=windows.everywhere)


def _qwen_experts(c: Fields, i: int) -> Experts | None:
    """Every `decoder_sparse_step`-th layer has experts, but for those in `mlp_only_layers`."""
    step = c.integer("decoder_sparse_step")
    dense = c.integers("mlp_only_layers") or ()
    if i in dense or (i + 1) % step or c.integer("num_experts", minimum=0) == 0:
        return None
    return Experts(experts_of(c, experts="num_experts", width="moe_intermediate_size"))


@architecture("qwen3_moe", "Qwen3MoeForCausalLM")
def qwen3_moe(c: Fields) -> Stack:
    """Qwen3-MoE (arXiv 2505.09388)."""
    style = replace(biased(c, qk_norm="head"), mlp_bias=False)
    return grouped_decoder(c, style, experts=_qwen_experts, windows=windows.if_used_everywhere)


@architecture("qwen2_moe", "Qwen2MoeForCausalLM")
def qwen2_moe(c: Fields) -> Stack:
    """Qwen1.5-MoE and Qwen2-57B-A14B: one shared expert behind a gate of its own."""

    def experts(c: Fields, i: int) -> Experts | None:
        found = _qwen_experts(c, i)
        if found is None:
            return None
        shared = c.integer("shared_expert_intermediate_size", minimum=0)
        moe = found.moe.model_copy(update={"shared_intermediate": shared})
        return Experts(moe, extra=whole(c.integer("hidden_size"), 1))

    style = Style(qkv_bias=c.boolean("qkv_bias"))
    return grouped_decoder(c, style, experts=experts, windows=windows.before_max_window_layers)


@architecture("olmoe", "OlmoeForCausalLM")
def olmoe(c: Fields) -> Stack:
    """OLMoE (arXiv 2409.02060)."""
    style = replace(biased(c, qk_norm="full"), mlp_bias=False)
    return grouped_decoder(c, style, experts=everywhere(experts="num_experts"))


@architecture("flex_olmo", "FlexOlmoForCausalLM")
def flex_olmo(c: Fields) -> Stack:
    """FlexOlmo (arXiv 2507.07024)."""
    return olmoe(c)


@architecture("phimoe", "PhimoeForCausalLM")
def phimoe(c: Fields) -> Stack:
    """Phi-3.5-MoE: layer norms, and a bias on the output matrix where the config says so."""
    style = replace(
        biased(c),
        mlp_bias=False,
        norm="layernorm",
        norm_vectors=2,
        head_bias=c.boolean("lm_head_bias"),
    )
    return grouped_decoder(c, style, experts=everywhere(), windows=windows.everywhere)


@architecture("gpt_oss", "GptOssForCausalLM")
def gpt_oss(c: Fields) -> Stack:
    """gpt-oss (arXiv 2508.10925): a sink for each head, biases, a window on every other layer."""

    def experts(c: Fields, i: int) -> Experts:
        return Experts(experts_of(c, bias=True), router_bias=True)

    sinks = Weights(sharded=c.integer("num_attention_heads"))
    style = replace(biased(c), mlp_bias=False, extra=sinks)
    return grouped_decoder(c, style, experts=experts, windows=windows.full_every(2))


@architecture("minimax_m2", "MiniMaxM2ForCausalLM")
def minimax_m2(c: Fields) -> Stack:
    """MiniMax-M2: norms over all queries and over all keys."""
    return grouped_decoder(c, Style(qk_norm="full"), experts=everywhere())


@architecture("granitemoe", "GraniteMoeForCausalLM")
def granitemoe(c: Fields) -> Stack:
    """Granite 3 MoE."""
    return grouped_decoder(c, replace(biased(c), mlp_bias=False), experts=everywhere())


@architecture("granitemoeshared", "GraniteMoeSharedForCausalLM")
def granitemoeshared(c: Fields) -> Stack:
    """Granite MoE with a shared expert."""

    def experts(c: Fields, i: int) -> Experts:
        shared = c.integer("shared_intermediate_size", null=0, minimum=0)
        return Experts(experts_of(c, shared=shared))

    return grouped_decoder(c, replace(biased(c), mlp_bias=False), experts=experts)


@architecture("granitemoehybrid", "GraniteMoeHybridForCausalLM")
def granitemoehybrid(c: Fields) -> Stack:
    """Granite 4, where every layer is attention (the Mamba layers of others are refused)."""
    count = c.layers()
    kinds = windows.layer_types(c, count, ("attention", "full_attention"))
    if kinds is None:
        wanted = "must name every layer attention: Mamba layers are not supported"
        raise SpecError(pointer_to(c.pointer, "layer_types"), None, wanted)

    def experts(c: Fields, i: int) -> Experts | None:
        if c.integer("num_local_experts", null=0, minimum=0) == 0:
            return None
        return Experts(experts_of(c, shared=c.integer("shared_intermediate_size")))

    style = replace(biased(c), mlp_bias=False)
    return grouped_decoder(c, style, experts=experts, dense_width="shared_intermediate_size")


@architecture("glm4_moe", "Glm4MoeForCausalLM")
def glm4_moe(c: Fields) -> Stack:
    """GLM-4.5 (arXiv 2508.06471): the first layers are dense."""
    style = Style(
        qkv_bias=c.boolean("attention_bias"),
        qk_norm="head" if c.boolean("use_qk_norm") else "none",
    )
    return grouped_decoder(c, style, experts=routed_and_shared)


@architecture("sarvam_moe", "Glm4MoeForCausalLM")
def sarvam_moe(c: Fields) -> Stack:
    """Sarvam 30B: GLM-4.5's class."""
    return glm4_moe(c)


@architecture("hy_v3", "HYV3ForCausalLM")
def hy_v3(c: Fields) -> Stack:
    """Hunyuan 3: without a list of kinds the first layer is dense."""

    def experts(c: Fields, i: int) -> Experts | None:
        sparse = sparse_layers(c, i) if c.given("mlp_layer_types") else i > 0
        if not sparse:
            return None
        width = c.integer("moe_intermediate_size")
        shared = c.integer("num_shared_experts", null=0, minimum=0) * width
        moe = experts_of(c, experts="num_experts", width="moe_intermediate_size", shared=shared)
        return Experts(moe, shared_bias=c.boolean("mlp_bias"))

    return grouped_decoder(c, biased(c, qk_norm="head"), experts=experts)


@architecture("solar_open", "SolarOpenForCausalLM")
def solar_open(c: Fields) -> Stack:
    """Solar Open: GLM-4.5's shape with experts in every layer."""
    style = Style(qkv_bias=c.boolean("attention_bias"))
    return grouped_decoder(c, style, experts=lambda c, _: _routed_and_shared(c))


@architecture("dots1", "Dots1ForCausalLM")
def dots1(c: Fields) -> Stack:
    """dots.llm1 (arXiv 2506.05767)."""
    style = replace(biased(c, qk_norm="head"), mlp_bias=False)
    return grouped_decoder(
        c, style, experts=routed_and_shared, windows=windows.after_max_window_layers
    )


@architecture("exaone_moe", "ExaoneMoeForCausalLM")
def exaone_moe(c: Fields) -> Stack:
    """K-EXAONE."""

    def experts(c: Fields, i: int) -> Experts | None:
        if not sparse_layers(c, i):
            return None
        width = c.integer("moe_intermediate_size")
        shared = c.integer("num_shared_experts", null=0, minimum=0) * width
        return Experts(
            experts_of(c, experts="num_experts", width="moe_intermediate_size", shared=shared)
        )

    return grouped_decoder(c, Style(qk_norm="head"), experts=experts, windows=exaone_windows)


@architecture("mellum", "MellumForCausalLM")
def mellum(c: Fields) -> Stack:
    """Mellum 2."""

    def experts(c: Fields, i: int) -> Experts | None:
        if not sparse_layers(c, i):
            return None
        return Experts(experts_of(c, experts="num_experts", width="moe_intermediate_size"))

    style = replace(biased(c, qk_norm="head"), mlp_bias=False)
    return grouped_decoder(c, style, experts=experts, windows=windows.as_typed)


@architecture("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM")
def hunyuan_moe(c: Fields) -> Stack:
    """Hunyuan-A13B: one shared expert of the routed ones' width."""

    def experts(c: Fields, i: int) -> Experts:
        shared = c.integer("intermediate_size")
        return Experts(experts_of(c, experts="num_experts", top_k="moe_topk", shared=shared))

    style = replace(biased(c, qk_norm="head"), mlp_bias=False)
    return grouped_decoder(c, style, experts=experts)


@architecture("ernie4_5_moe", "Ernie4_5_MoeForCausalLM")
def ernie_moe(c: Fields) -> Stack:
    """ERNIE 4.5 MoE: experts between two layers' indices, a learned correction of the router."""
    bias = c.boolean("use_bias")
    count = c.layers()
    first = c.integer("moe_layer_start_index", minimum=0)
    last = c.integer("moe_layer_end_index", minimum=-1)
    last = count - 1 if last == -1 else last
    interval = c.integer("moe_layer_interval")

    def experts(c: Fields, i: int) -> Experts | None:
        if (i + 1) % interval or not first <= i <= last:
            return None
        width = c.integer("moe_intermediate_size")
        shared = c.integer("moe_num_shared_experts", null=0, minimum=0) * width
        moe = experts_of(
            c,
            experts="moe_num_experts",
            top_k="moe_k",
            width="moe_intermediate_size",
            shared=shared,
        )
        return Experts(moe, shared_bias=bias, extra=vector(moe.experts))

    style = Style(qkv_bias=bias, out_bias=bias, mlp_bias=bias, head_bias=bias)
    return grouped_decoder(c, style, experts=experts)


@architecture("afmoe", "AfmoeForCausalLM")
def afmoe(c: Fields) -> Stack:
    """Trinity (AFMoE): a gate on attention's output, norms around each sub-layer."""
    hidden = c.integer("hidden_size")
    gate_width = c.integer("num_attention_heads") * c.integer("head_dim")
    dense = c.integer("num_dense_layers", null=0, minimum=0)

    def experts(c: Fields, i: int) -> Experts | None:
        if i < dense:
            return None
        width = c.integer("moe_intermediate_size")
        shared = c.integer("num_shared_experts", null=0, minimum=0) * width
        moe = experts_of(c, experts="num_experts", width="moe_intermediate_size", shared=shared)
        return Experts(moe, extra=vector(moe.experts))

    gate = Weights(sharded=hidden * gate_width, matmul=hidden * gate_width)
    bias = c.boolean("attention_bias")
    style = Style(qkv_bias=bias, out_bias=bias, qk_norm="head", norms=4, extra=gate)
    period = c.integer("global_attn_every_n_layers")
    return grouped_decoder(c, style, experts=experts, windows=windows.full_every(period))


@architecture("aria_text", "AriaTextForCausalLM")
def aria(c: Fields) -> Stack:
    """Aria's text tower (arXiv 2410.05993)."""

    def experts(c: Fields, i: int) -> Experts:
        shared = c.integer("moe_num_shared_experts", null=0, minimum=0)
        width = c.integer("intermediate_size")
        moe = experts_of(c, experts="moe_num_experts", top_k="moe_topk", shared=shared * width)
        return Experts(moe, shared_bias=c.boolean("mlp_bias"))

    return grouped_decoder(c, replace(biased(c), mlp_bias=False), experts=experts)


@architecture("llama4_text", "Llama4ForCausalLM")
def llama4(c: Fields) -> Stack:
    """Llama 4: experts in every `interleave_moe_layer_step`-th layer, chunked attention."""
    count = c.layers()
    step = c.integer("interleave_moe_layer_step")
    listed = c.integers("moe_layers")
    sparse = set(range(step - 1, count, step) if listed is None else listed)

    def experts(c: Fields, i: int) -> Experts | None:
        if i not in sparse:
            return None
        return Experts(experts_of(c, shared=c.integer("intermediate_size")))

    return grouped_decoder(
        c,
        replace(biased(c), mlp_bias=False),
        experts=experts,
        windows=_llama4_windows,
        dense_width="intermediate_size_mlp",
    )


def _llama4_windows(c: Fields, layers: int) -> windows.Windows:
    """Layers with rotary positions attend within chunks; a 1 in `no_rope_layers` marks them."""
    if c.given("layer_types"):
        return windows.as_typed(c, layers)
    chunk = c.optional_integer("attention_chunk_size", minimum=0) or None
    interval = c.integer("no_rope_layer_interval", null=4)
    rotary = c.integers("no_rope_layers")
    if not rotary:
        rotary = tuple(int((i + 1) % interval != 0) for i in range(layers))
    if len(rotary) != layers:
        raise c.error("no_rope_layers", f"must have one entry for each of the {layers} layers")
    return tuple(chunk if has else None for has in rotary)


@architecture("dbrx", "DbrxForCausalLM")
def dbrx(c: Fields) -> Stack:
    """DBRX: attention and experts are described in objects of their own."""
    hidden = c.integer("d_model")
    vocab = c.integer("vocab_size")
    heads = c.integer("n_heads")
    if hidden % heads:
        raise c.error("n_heads", f"must divide d_model ({hidden})")
    inner = c.sub("attn_config", {"kv_n_heads": 1})
    outer = c.sub(
        "ffn_config",
        {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1},
    )
    attention = Attention(
        heads=heads,
        kv_heads=key_value_heads(inner, heads, "kv_n_heads"),
        head_dim=hidden // heads,
        value_head_dim=hidden // heads,
    )
    experts = Experts(
        experts_of(outer, experts="moe_num_experts", top_k="moe_top_k", width="ffn_hidden_size")
    )
    style = Style(norm="layernorm")
    if c.boolean("tie_word_embeddings"):
        raise c.error("tie_word_embeddings", "must be false: DBRX has its own output matrix")
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[grouped_layer(style, hidden, attention, None, experts)] * c.layers("n_layers"),
        embedding_params=vocab * hidden,
        final_params=hidden,
        tied=False,
        max_seq_len=c.optional_integer("max_seq_len"),
        norm="layernorm",
        activation="silu",
        dropout=c.number("resid_pdrop"),
    )


@architecture("mimo_v2_flash", "MiMoV2FlashForCausalLM")
def mimo_v2(c: Fields) -> Stack:
    """MiMo-V2-Flash: layers with a window have twice the key-value heads, and sinks."""
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    count = c.layers()
    kinds = windows.layer_types(c, count)
    dense = windows.layer_types(c, count, ("dense", "sparse"), "mlp_layer_types")
    window = c.optional_integer("sliding_window")
    if c.given("sliding_window_size"):
        window = c.integer("sliding_window_size") + 1
    bias = c.boolean("attention_bias")
    layers = []
    for i in range(count):
        slides = kinds[i] == "sliding_attention" if kinds else i != 0 and (i + 1) % 6 != 0
        base = grouped_attention(c, hidden=hidden, qkv_bias=bias, out_bias=False)
        attention = base.model_copy(
            update={
                "kv_heads": base.kv_heads * (1 + slides),
                "value_head_dim": c.integer("v_head_dim"),
                "window": window if slides else None,
            }
        )
        weights = attention_weights(hidden, attention) + vector(2 * hidden)
        weights += Weights(sharded=attention.heads) if slides else NOTHING
        sparse = dense[i] == "sparse" if dense else i > 0
        mlp = moe = None
        if sparse:
            moe = experts_of(c, experts="n_routed_experts", width="moe_intermediate_size")
            weights += moe_weights(hidden, moe)
        else:
            mlp = Mlp(intermediate=c.integer("intermediate_size"), gated=True)
            weights += mlp_weights(hidden, mlp)
        layers.append(layer(weights, norms=2, attention=attention, mlp=mlp, moe=moe))
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=layers,
        embedding_params=vocab * hidden,
        final_params=hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=c.optional_integer("max_position_embeddings"),
        activation=c.text("hidden_act"),
    )
