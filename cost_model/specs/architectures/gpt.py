"""GPT-2 and the decoders of its time: layer norms with shifts, biases, plain MLPs."""

from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.grouped import Style, grouped_layer
from cost_model.specs.architectures.stack import Stack, architecture
from cost_model.specs.model import Attention, Mlp


def full_attention(hidden: int, heads: int, kv_heads: int | None = None, **kind: bool) -> Attention:
    """Attention whose heads divide the hidden size."""
    width = hidden // heads
    return Attention(
        heads=heads, kv_heads=kv_heads or heads, head_dim=width, value_head_dim=width, **kind
    )


def heads_of(c: Fields, name: str, hidden: int) -> int:
    """The heads, which must divide the hidden size."""
    heads = c.integer(name)
    if hidden % heads:
        raise c.error(name, f"must divide the hidden size ({hidden})")
    return heads


@architecture("gpt2", "GPT2LMHeadModel")
def gpt2(c: Fields) -> Stack:
    """GPT-2, and GPT-3 (arXiv 2005.14165), which has its geometry."""
    hidden = c.integer("n_embd")
    vocab = c.integer("vocab_size")
    positions = c.integer("n_positions")
    attention = full_attention(hidden, heads_of(c, "n_head", hidden), qkv_bias=True, out_bias=True)
    mlp = Mlp(intermediate=c.integer("n_inner", null=4 * hidden), gated=False, bias=True)
    style = Style(norm="layernorm", norm_vectors=2)
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[grouped_layer(style, hidden, attention, mlp)] * c.layers("n_layer"),
        embedding_params=(vocab + positions) * hidden,
        final_params=2 * hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=positions,
        norm="layernorm",
        position="learned",
        activation=c.text("activation_function"),
        dropout=c.number("resid_pdrop"),
    )
