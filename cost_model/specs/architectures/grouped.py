"""Decoders of pre-norm layers with grouped-query attention: the Llama shape and its variations.

One reader serves them all; a `Style` says in what an architecture departs from Llama.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.stack import NormKind, Stack
from cost_model.specs.architectures.weights import (
    NOTHING,
    Weights,
    attention_weights,
    layer,
    mlp_weights,
    moe_weights,
    vector,
)
from cost_model.specs.architectures.windows import without
from cost_model.specs.model import Attention, Layer, Mlp, Moe

QkNorm = Literal["none", "head", "heads", "full"]
"""Norms of queries and keys: none; one of head_dim each; one per head; over all heads at once."""


@dataclass(frozen=True)
class Experts:
    """A mixture-of-experts sub-layer with what only the parameter count needs."""

    moe: Moe
    router_bias: bool = False
    shared_bias: bool | None = None
    """Biases on the shared experts; as the routed ones where None."""
    extra: Weights = NOTHING
    """Gates and scales beside the matrices."""
    mlp: Mlp | None = None
    """A dense MLP beside the experts."""


ExpertsReader = Callable[[Fields, int], Experts | None]
"""The experts of layer i, or None where it is dense."""
WindowReader = Callable[[Fields, int], tuple[int | None, ...]]
"""The window of every layer, given how many there are."""


@dataclass(frozen=True)
class Style:
    """Departures from Llama. `norm_vectors` is how many vectors of hidden size a norm has."""

    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    gated: bool = True
    qk_norm: QkNorm = "none"
    qk_norm_vectors: int = 1
    norm: NormKind = "rmsnorm"
    norm_vectors: int = 1
    norms: int = 2
    """Norms over the hidden size in a layer."""
    final_norm: bool = True
    parallel_residual: bool = False
    head_bias: bool = False
    grouped: bool = True
    """Whether queries may share keys and values, and heads have a width of their own."""
    dropout: float = 0.0
    activation: str = "hidden_act"
    """Name of the field with the activation."""
    extra: Weights = NOTHING
    """What a layer has besides: attention sinks, scales."""
    notes: tuple[str, ...] = ()


def head_width(c: Fields, hidden: int, heads: int, name: str | None = "head_dim") -> int:
    """`head_dim`, or hidden over heads, which must then divide."""
    found = None if name is None else c.optional_integer(name)
    if found is not None:
        return found
    if hidden % heads:
        wanted = f"must divide hidden_size ({hidden}), as head_dim is not given"
        raise c.error("num_attention_heads", wanted)
    return hidden // heads


def key_value_heads(c: Fields, heads: int, name: str = "num_key_value_heads") -> int:
    """Key and value heads, all heads where not given; they must divide the heads."""
    found = c.integer(name, null=heads)
    if heads % found:
        raise c.error(name, f"must divide the number of attention heads ({heads})")
    return found


def grouped_attention(
    c: Fields,
    *,
    hidden: int,
    qkv_bias: bool,
    out_bias: bool,
    window: int | None = None,
    grouped: bool = True,
) -> Attention:
    """The attention of one layer from the usual names."""
    heads = c.integer("num_attention_heads")
    width = head_width(c, hidden, heads, "head_dim" if grouped else None)
    return Attention(
        heads=heads,
        kv_heads=key_value_heads(c, heads) if grouped else heads,
        head_dim=width,
        value_head_dim=width,
        qkv_bias=qkv_bias,
        out_bias=out_bias,
        window=window,
    )


def qk_norm_weights(a: Attention, kind: QkNorm, vectors: int = 1) -> Weights:
    """Scales (and shifts) of the norms of queries and keys."""
    widths = {
        "none": 0,
        "head": 2 * a.head_dim,
        "heads": (a.heads + a.kv_heads) * a.head_dim,
        "full": (a.heads + a.kv_heads) * a.head_dim,
    }
    if kind == "head":
        return vector(vectors * widths[kind])
    # Norms that have a scale per head shard with the heads.
    return Weights(sharded=vectors * widths[kind])


def grouped_layer(
    style: Style,
    hidden: int,
    attention: Attention,
    mlp: Mlp | None,
    experts: Experts | None = None,
) -> Layer:
    """One layer in the given style."""
    if style.qk_norm != "none":
        attention = attention.model_copy(update={"qk_norm": True})
    weights = (
        attention_weights(hidden, attention)
        + qk_norm_weights(attention, style.qk_norm, style.qk_norm_vectors)
        + vector(style.norms * style.norm_vectors * hidden)
        + style.extra
    )
    if mlp is not None:
        weights += mlp_weights(hidden, mlp)
    if experts is not None:
        weights += experts.extra + moe_weights(
            hidden, experts.moe, experts.router_bias, experts.shared_bias
        )
    return layer(
        weights,
        norms=style.norms,
        attention=attention,
        mlp=mlp,
        moe=experts.moe if experts is not None else None,
        parallel_residual=style.parallel_residual,
    )


def _styled_layer(
    c: Fields,
    style: Style,
    hidden: int,
    window: int | None,
    experts: Experts | None,
    dense_width: str,
) -> Layer:
    attention = grouped_attention(
        c,
        hidden=hidden,
        qkv_bias=style.qkv_bias,
        out_bias=style.out_bias,
        window=window,
        grouped=style.grouped,
    )
    if experts is not None:
        return grouped_layer(style, hidden, attention, experts.mlp, experts)
    mlp = Mlp(intermediate=c.integer(dense_width), gated=style.gated, bias=style.mlp_bias)
    return grouped_layer(style, hidden, attention, mlp)


def grouped_decoder(
    c: Fields,
    style: Style,
    *,
    experts: ExpertsReader | None = None,
    windows: WindowReader = without,
    dense_width: str = "intermediate_size",
) -> Stack:
    """A decoder whose layers are `grouped_layer`s."""
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    count = c.layers()
    made: dict[tuple[int | None, Experts | None], Layer] = {}
    layers = []
    for i, window in enumerate(windows(c, count)):
        chosen = experts(c, i) if experts is not None else None
        if (window, chosen) not in made:
            made[window, chosen] = _styled_layer(c, style, hidden, window, chosen, dense_width)
        layers.append(made[window, chosen])
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=layers,
        embedding_params=vocab * hidden,
        final_params=style.norm_vectors * hidden if style.final_norm else 0,
        tied=c.boolean("tie_word_embeddings"),
        head_bias=style.head_bias,
        max_seq_len=c.optional_integer("max_position_embeddings"),
        norm=style.norm,
        activation=c.text(style.activation, null="silu"),
        dropout=style.dropout,
        notes=style.notes,
    )
