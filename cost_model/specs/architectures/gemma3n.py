"""Gemma 3n: four streams of hidden states (AltUp), low-rank residuals (LAuReL), packed embeddings.

AltUp is arXiv 2301.13310, LAuReL arXiv 2411.07501; shapes are those of Gemma3nForCausalLM.
"""

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.fields import MAX_INT, Fields
from cost_model.specs.architectures.grouped import grouped_attention
from cost_model.specs.architectures.stack import Stack, architecture
from cost_model.specs.architectures.weights import (
    column,
    layer,
    mlp_weights,
    row,
    vector,
    whole,
)
from cost_model.specs.model import Layer, Mlp

_STREAMS = "activations are those of one stream: AltUp's further copies of the hidden state are not"


@architecture("gemma3n_text", "Gemma3nForCausalLM")
def gemma3n(c: Fields) -> Stack:
    """Gemma 3n: layers reuse keys and values of earlier ones, and have embeddings of their own."""
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    count = c.layers()
    streams = c.integer("altup_num_inputs", maximum=64)
    per_layer = c.integer("hidden_size_per_layer_input")
    reusing = c.integer("num_kv_shared_layers", null=0, minimum=0)
    if reusing > count:
        raise c.error("num_kv_shared_layers", f"must be at most the number of layers ({count})")
    spans = windows.full_every(5)(c, count)
    widths = _widths(c, count)
    packed = count * per_layer
    tables = whole(hidden, packed) + vector(per_layer)
    mixing = (streams - 1) * hidden * hidden
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[
            _one(c, hidden, per_layer, streams, spans[i], widths[i], i >= count - reusing)
            for i in range(count)
        ],
        embedding_params=vocab * hidden
        + c.integer("vocab_size_per_layer_input") * packed
        + tables.replicated
        + mixing,
        final_params=hidden + mixing,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=c.optional_integer("max_position_embeddings"),
        activation=c.text("hidden_activation"),
        notes=(_STREAMS,),
    )


def _widths(c: Fields, layers: int) -> tuple[int, ...]:
    """`intermediate_size` is one number, or one for each layer."""
    if not isinstance(c.value("intermediate_size"), (list, tuple)):
        return (c.integer("intermediate_size"),) * layers
    listed = c.integers("intermediate_size", minimum=1) or ()
    if len(listed) != layers or max(listed, default=0) > MAX_INT:
        raise c.error("intermediate_size", f"must have one entry for each of the {layers} layers")
    return listed


def _one(
    c: Fields,
    hidden: int,
    per_layer: int,
    streams: int,
    window: int | None,
    intermediate: int,
    reuses: bool,
) -> Layer:
    bias = c.boolean("attention_bias")
    a = grouped_attention(c, hidden=hidden, qkv_bias=bias, out_bias=bias, window=window)
    queries, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
    weights = column(hidden, queries, bias) + row(queries, hidden, bias) + vector(a.head_dim)
    if not reuses:
        weights += column(hidden, keys, bias) + column(hidden, keys, bias) + vector(a.head_dim)
    mlp = Mlp(intermediate=intermediate, gated=True)
    rank = c.integer("laurel_rank")
    weights += mlp_weights(hidden, mlp) + whole(hidden, rank) + whole(rank, hidden)
    weights += whole(hidden, per_layer) + whole(per_layer, hidden)
    weights += whole(hidden, streams) + whole(streams, streams) + whole(streams, streams**2)
    # Four around the sub-layers, and those of the router, LAuReL and the layer's own embedding;
    # AltUp's correction has a scale as wide as a norm's.
    norms = 7
    return layer(weights + vector((norms + 1) * hidden), norms=norms, attention=a, mlp=mlp)
