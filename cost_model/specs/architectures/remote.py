"""Models whose class comes with the checkpoint, read from the geometry in config.json alone."""

from dataclasses import replace

from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.grouped import Style, grouped_decoder, head_width
from cost_model.specs.architectures.stack import Stack, architecture
from cost_model.specs.architectures.weights import (
    NOTHING,
    attention_weights,
    layer,
    mlp_weights,
    vector,
)
from cost_model.specs.model import Attention, Layer, Mlp


@architecture("nemotron-nas", "DeciLMForCausalLM")
def decilm(c: Fields) -> Stack:
    """Llama-Nemotron (arXiv 2505.00949): `block_configs` shapes each layer, or drops a part.

    The MLP is two thirds of 2 x `ffn_mult` x hidden wide, rounded up to a multiple of 256. A
    dropped part takes its norm with it.
    """
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    heads = c.integer("num_attention_heads")
    blocks = c.objects("block_configs")
    if len(blocks) != c.layers():
        wanted = f"must have one entry for each of the {c.layers()} layers"
        raise c.error("block_configs", wanted)
    bias = c.boolean("attention_bias")
    width = head_width(c, hidden, heads)
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[
            _block(b, hidden, heads, width, attention_bias=bias, mlp_bias=c.boolean("mlp_bias"))
            for b in blocks
        ],
        embedding_params=vocab * hidden,
        final_params=hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=c.optional_integer("max_position_embeddings"),
        activation=c.text("hidden_act", null="silu"),
        notes=("read from block_configs: the class itself comes with the checkpoint",),
    )


def _block(
    block: Fields, hidden: int, heads: int, width: int, *, attention_bias: bool, mlp_bias: bool
) -> Layer:
    inner, outer = block.sub("attention"), block.sub("ffn")
    for part in (inner, outer):
        if part.boolean("replace_with_linear"):
            raise part.error("replace_with_linear", "must be false: not supported")
    attention = mlp = None
    weights = NOTHING
    if not inner.boolean("no_op"):
        group = inner.integer("n_heads_in_group")
        if heads % group:
            raise inner.error("n_heads_in_group", f"must divide num_attention_heads ({heads})")
        attention = Attention(
            heads=heads,
            kv_heads=heads // group,
            head_dim=width,
            value_head_dim=width,
            qkv_bias=attention_bias,
            out_bias=attention_bias,
            window=inner.optional_integer("window_length"),
        )
        weights += attention_weights(hidden, attention) + vector(hidden)
    if not outer.boolean("no_op"):
        exact = int(2 * outer.number("ffn_mult", null=1.0) * hidden / 3)
        mlp = Mlp(intermediate=-(-max(exact, 1) // 256) * 256, gated=True, bias=mlp_bias)
        weights += mlp_weights(hidden, mlp) + vector(hidden)
    norms = (attention is not None) + (mlp is not None)
    return layer(weights, norms=norms, attention=attention, mlp=mlp)


_GEOMETRY = ("read from its geometry: the class itself comes with the checkpoint",)


@architecture("internlm2", "InternLM2ForCausalLM")
def internlm2(c: Fields) -> Stack:
    """InternLM2 (arXiv 2403.17297): Llama's shape, queries, keys and values in one matrix."""
    bias = c.boolean("bias")
    return grouped_decoder(c, Style(qkv_bias=bias, out_bias=bias, notes=_GEOMETRY))


@architecture("baichuan", "BaichuanForCausalLM")
def baichuan(c: Fields) -> Stack:
    """Baichuan and Baichuan 2 (arXiv 2309.10305): Llama's shape; 13B has ALiBi."""
    stack = grouped_decoder(c, Style(grouped=False, notes=_GEOMETRY))
    if c.given("max_position_embeddings"):
        return stack
    return replace(stack, position="alibi")
