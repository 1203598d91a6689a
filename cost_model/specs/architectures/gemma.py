"""Gemma: wide heads, tied embeddings, from the second on norms around each sub-layer."""

from dataclasses import replace

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.grouped import (
    Style,
    grouped_decoder,
    key_value_heads,
)
from cost_model.specs.architectures.llama import biased
from cost_model.specs.architectures.stack import Stack, architecture
from cost_model.specs.architectures.weights import (
    NOTHING,
    Weights,
    column,
    layer,
    mlp_weights,
    moe_weights,
    row,
    vector,
    whole,
)
from cost_model.specs.model import Attention, Layer, Mlp, Moe


def _style(c: Fields, norms: int) -> Style:
    return replace(biased(c), mlp_bias=False, norms=norms, activation="hidden_activation")


@architecture("gemma", "GemmaForCausalLM")
def gemma(c: Fields) -> Stack:
    """Gemma (arXiv 2403.08295)."""
    return grouped_decoder(c, replace(_style(c, 2), activation="hidden_act"))


@architecture("gemma2", "Gemma2ForCausalLM")
def gemma2(c: Fields) -> Stack:
    """Gemma 2 (arXiv 2408.00118): every other layer has a window."""
    return grouped_decoder(c, _style(c, 4), windows=windows.full_every(2))


@architecture("gemma3_text", "Gemma3ForCausalLM")
def gemma3(c: Fields) -> Stack:
    """Gemma 3 (arXiv 2503.19786): five layers of six have a window."""
    style = replace(_style(c, 4), qk_norm="head")
    return grouped_decoder(c, style, windows=windows.full_every_pattern(6))


@architecture("vaultgemma", "VaultGemmaForCausalLM")
def vaultgemma(c: Fields) -> Stack:
    """VaultGemma: Gemma 2 with norms before the sub-layers alone."""
    return grouped_decoder(c, _style(c, 2), windows=windows.full_every(2))


@architecture("gemma4_text", "Gemma4ForCausalLM")
def gemma4(c: Fields) -> Stack:
    """Gemma 4: global layers have wider heads; some layers reuse keys and values of others.

    Where `hidden_size_per_layer_input` is set, each layer adds a small embedding of its own,
    from one packed table.
    """
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    count = c.layers()
    spans = windows.layer_types(c, count)
    sliding = [
        (i + 1) % 6 != 0 if spans is None else spans[i] == "sliding_attention" for i in range(count)
    ]
    sliding[-1] = False
    reusing = c.integer("num_kv_shared_layers", null=0, minimum=0)
    if reusing > count:
        raise c.error("num_kv_shared_layers", f"must be at most the number of layers ({count})")
    per_layer = c.integer("hidden_size_per_layer_input", null=0, minimum=0)
    packed = count * per_layer
    tables = whole(hidden, packed) + vector(per_layer) if packed else NOTHING
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[
            _gemma4_layer(
                c,
                hidden,
                per_layer,
                _gemma4_heads(c, i, slides=sliding[i]),
                slides=sliding[i],
                reuses=i >= count - reusing,
            )
            for i in range(count)
        ],
        embedding_params=vocab * hidden
        + (c.integer("vocab_size_per_layer_input") * packed if packed else 0)
        + tables.replicated,
        final_params=hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=c.optional_integer("max_position_embeddings"),
        activation=c.text("hidden_activation"),
    )


def _gemma4_heads(c: Fields, i: int, *, slides: bool) -> tuple[int, int]:
    """Key-value heads of layer i and their width.

    By `per_layer_config`, as transformers 5 writes it, or by the fields of global layers.
    """
    heads = c.integer("num_attention_heads")
    kv_heads = key_value_heads(c, heads)
    width = c.integer("head_dim")
    if c.given("per_layer_config"):
        own = c.sub("per_layer_config").sub(str(i))
        for name in own.data:
            if name not in ("head_dim", "num_key_value_heads"):
                raise own.error(name, "must be head_dim or num_key_value_heads to differ by layer")
        if own.given("num_key_value_heads"):
            kv_heads = key_value_heads(own, heads)
        return kv_heads, own.integer("head_dim", null=width)
    if slides:
        return kv_heads, width
    if c.boolean("attention_k_eq_v") and c.given("num_global_key_value_heads"):
        kv_heads = key_value_heads(c, heads, "num_global_key_value_heads")
    return kv_heads, c.integer("global_head_dim", null=512)


def _gemma4_layer(
    c: Fields,
    hidden: int,
    per_layer: int,
    kv_shape: tuple[int, int],
    *,
    slides: bool,
    reuses: bool,
) -> Layer:
    heads = c.integer("num_attention_heads")
    kv_heads, width = kv_shape
    bias = c.boolean("attention_bias")
    equal = c.boolean("attention_k_eq_v") and not slides
    attention = Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        value_head_dim=width,
        qkv_bias=bias,
        out_bias=bias,
        window=c.optional_integer("sliding_window") if slides else None,
    )
    weights = column(hidden, heads * width, bias) + row(heads * width, hidden, bias) + vector(width)
    if not reuses:
        own = column(hidden, kv_heads * width, bias)
        weights += own + vector(width) + (NOTHING if equal else own)
    doubled = reuses and c.boolean("use_double_wide_mlp")
    mlp = Mlp(intermediate=c.integer("intermediate_size") * (1 + doubled), gated=True)
    norms = 4
    weights += mlp_weights(hidden, mlp)
    moe = None
    if c.boolean("enable_moe_block"):
        moe = Moe(
            experts=c.integer("num_experts"),
            top_k=c.integer("top_k_experts"),
            intermediate=c.integer("moe_intermediate_size"),
        )
        # The router's norm has a scale of its own, and one for each expert.
        weights += moe_weights(hidden, moe) + vector(hidden + moe.experts)
        norms += 3
    if per_layer:
        weights += whole(hidden, per_layer) + whole(per_layer, hidden)
        norms += 1
    weights += Weights(replicated=norms * hidden)
    return layer(weights, norms=norms, attention=attention, mlp=mlp, moe=moe)
