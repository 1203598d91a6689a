"""Encoder-decoder models: T5 and BART, and those of their shape."""

from collections.abc import Callable

from cost_model.specs.architectures.fields import MAX_LAYERS, Fields
from cost_model.specs.architectures.gpt import plain_attention
from cost_model.specs.architectures.heads import language_head
from cost_model.specs.architectures.stack import Head, Position, Stack, architecture
from cost_model.specs.architectures.weights import (
    NOTHING,
    Weights,
    attention_weights,
    layer,
    mlp_weights,
    moe_weights,
    vector,
)
from cost_model.specs.model import Attention, Layer, Mlp, Moe


def _task(c: Fields, stack: Stack, class_name: str) -> Head | None:
    """Generation, or the bare model; classifiers are not supported."""
    if class_name.endswith(("ForConditionalGeneration", "MTModel", "WithLMHeadModel")):
        return language_head(stack)
    if class_name.endswith("Model") and not class_name.endswith("EncoderModel"):
        return Head(stack.final_params)
    return None


FeedForward = Callable[[int, bool], Mlp | Moe]
"""The feed-forward part of layer i of the encoder, or of the decoder (True)."""


def _t5(
    c: Fields,
    *,
    feed_forward: FeedForward,
    activation: str,
    bias_in_every_layer: bool = False,
    router_bias: bool = False,
    tied: bool = True,
) -> Stack:
    """T5 (arXiv 1910.10683): no biases, scale-only norms, relative positions from a table.

    The table stands in the first layer of each stack. Untied, encoder and decoder have token
    tables of their own beside the shared one.
    """
    hidden = c.integer("d_model")
    vocab = c.integer("vocab_size")
    heads = c.integer("num_heads")
    width = c.integer("d_kv")
    first = c.layers("num_layers")
    second = c.optional_integer("num_decoder_layers", maximum=MAX_LAYERS)
    table = Weights(sharded=c.integer("relative_attention_num_buckets") * heads)

    def one(i: int, decodes: bool) -> Layer:
        own = Attention(
            heads=heads, kv_heads=heads, head_dim=width, value_head_dim=width, causal=decodes
        )
        cross = own.model_copy(update={"causal": False}) if decodes else None
        norms = 3 if decodes else 2
        part = feed_forward(i, decodes)
        mlp, moe = (part, None) if isinstance(part, Mlp) else (None, part)
        weights = attention_weights(hidden, own) + vector(norms * hidden)
        weights += attention_weights(hidden, cross) if cross is not None else NOTHING
        weights += mlp_weights(hidden, mlp) if mlp is not None else NOTHING
        weights += moe_weights(hidden, moe, router_bias) if moe is not None else NOTHING
        weights += table if i == 0 or bias_in_every_layer else NOTHING
        return layer(weights, norms=norms, attention=own, mlp=mlp, moe=moe, cross_attention=cross)

    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[one(i, False) for i in range(first)]
        + [one(i, True) for i in range(first if second is None else second)],
        embedding_params=vocab * hidden * (1 if tied else 3),
        final_params=2 * hidden,
        tied=tied,
        max_seq_len=None,
        position="relative",
        activation=activation,
        dropout=c.number("dropout_rate"),
        family="encoder_decoder",
        encoder_layers=first,
        task=_task,
    )


def _dense_t5(c: Fields, *, bias_in_every_layer: bool) -> Stack:
    """`feed_forward_proj` is an activation, with `gated-` before it where the MLP is gated.

    The class ties token table and output whatever the config says.
    """
    parts = c.text("feed_forward_proj", null="relu").split("-")
    if len(parts) > 2 or (len(parts) == 2 and parts[0] != "gated"):
        raise c.error("feed_forward_proj", "must be an activation, or gated- and an activation")
    mlp = Mlp(intermediate=c.integer("d_ff"), gated=parts[0] == "gated")
    return _t5(
        c,
        feed_forward=lambda i, decodes: mlp,
        activation=parts[-1],
        bias_in_every_layer=bias_in_every_layer,
    )


@architecture("switch_transformers", "SwitchTransformersForConditionalGeneration")
def switch(c: Fields) -> Stack:
    """Switch Transformers (arXiv 2101.03961): T5 with one expert of many in some layers."""
    encoder = c.layers("num_layers")
    decoder = c.integer("num_decoder_layers", null=encoder)
    sparse = (
        c.integer("num_sparse_encoder_layers", minimum=0),
        c.integer("num_sparse_decoder_layers", minimum=0),
    )
    every = [
        layers // chosen if chosen else layers
        for layers, chosen in zip((encoder, decoder), sparse, strict=True)
    ]
    width = c.integer("d_ff")
    dense = Mlp(intermediate=width, gated=False)
    routed = Moe(
        experts=c.integer("num_experts", maximum=2**20), top_k=1, intermediate=width, gated=False
    )

    def feed_forward(i: int, decodes: bool) -> Mlp | Moe:
        step = every[decodes]
        return routed if step == 1 or (step > 0 and i % step == 1) else dense

    return _t5(
        c,
        feed_forward=feed_forward,
        activation=c.text("dense_act_fn"),
        router_bias=c.boolean("router_bias"),
        tied=c.boolean("tie_word_embeddings"),
    )


@architecture("t5", "T5ForConditionalGeneration")
def t5(c: Fields) -> Stack:
    """T5 and Flan-T5."""
    return _dense_t5(c, bias_in_every_layer=False)


@architecture("mt5", "MT5ForConditionalGeneration")
def mt5(c: Fields) -> Stack:
    """mT5 (arXiv 2010.11934)."""
    return _dense_t5(c, bias_in_every_layer=False)


@architecture("umt5", "UMT5ForConditionalGeneration")
def umt5(c: Fields) -> Stack:
    """umT5 (arXiv 2304.09151): a table of relative positions in every layer."""
    return _dense_t5(c, bias_in_every_layer=True)


def _bart(
    c: Fields,
    *,
    positions: Callable[[int], int],
    embedding_norm: bool,
    final_norm: bool,
    position: Position = "learned",
) -> Stack:
    """BART's shape: biases throughout, layer norms; `positions` is the rows of each table.

    Untied, encoder and decoder have token tables of their own beside the shared one.
    """
    hidden = c.integer("d_model")
    vocab = c.integer("vocab_size")
    longest = c.integer("max_position_embeddings")

    def one(decodes: bool) -> Layer:
        heads = "decoder_attention_heads" if decodes else "encoder_attention_heads"
        width = c.integer("decoder_ffn_dim" if decodes else "encoder_ffn_dim")
        own = plain_attention(c, hidden, heads, causal=decodes)
        cross = plain_attention(c, hidden, heads, causal=False)
        mlp = Mlp(intermediate=width, gated=False, bias=True)
        norms = 3 if decodes else 2
        weights = attention_weights(hidden, own) + mlp_weights(hidden, mlp)
        weights += vector(2 * norms * hidden)
        weights += attention_weights(hidden, cross) if decodes else NOTHING
        return layer(
            weights,
            norms=norms,
            attention=own,
            mlp=mlp,
            cross_attention=cross if decodes else None,
        )

    first = c.layers("encoder_layers")
    tied = c.boolean("tie_word_embeddings")
    tables = vocab * (1 if tied else 3) + 2 * positions(longest)
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[one(False)] * first + [one(True)] * c.layers("decoder_layers"),
        embedding_params=tables * hidden + 4 * hidden * embedding_norm,
        final_params=4 * hidden * final_norm,
        tied=tied,
        max_seq_len=longest,
        norm="layernorm",
        position=position,
        activation=c.text("activation_function"),
        dropout=c.number("dropout"),
        family="encoder_decoder",
        encoder_layers=first,
        task=_task,
    )


@architecture("bart", "BartForConditionalGeneration")
def bart(c: Fields) -> Stack:
    """BART (arXiv 1910.13461): two spare positions, a norm behind the embedding."""
    return _bart(c, positions=lambda n: n + 2, embedding_norm=True, final_norm=False)


@architecture("mbart", "MBartForConditionalGeneration")
def mbart(c: Fields) -> Stack:
    """mBART (arXiv 2001.08210): norms before the sub-layers, one at each end."""
    return _bart(c, positions=lambda n: n + 2, embedding_norm=True, final_norm=True)


@architecture("pegasus", "PegasusForConditionalGeneration")
def pegasus(c: Fields) -> Stack:
    """PEGASUS (arXiv 1912.08777): sinusoidal tables, which the class holds as parameters."""
    return _bart(c, positions=lambda n: n, embedding_norm=False, final_norm=True)


@architecture("blenderbot", "BlenderbotForConditionalGeneration")
def blenderbot(c: Fields) -> Stack:
    """Blenderbot (arXiv 2004.13637)."""
    return _bart(c, positions=lambda n: n, embedding_norm=False, final_norm=True)


@architecture("m2m_100", "M2M100ForConditionalGeneration")
def m2m_100(c: Fields) -> Stack:
    """M2M-100 and NLLB (arXiv 2010.11125): sinusoidal positions, which are no parameters."""
    return _bart(c, positions=lambda _: 0, embedding_norm=False, final_norm=True, position="none")


@architecture("marian", "MarianMTModel")
def marian(c: Fields) -> Stack:
    """Marian translation models: sinusoidal tables held as parameters, one shared vocabulary."""
    if not c.boolean("share_encoder_decoder_embeddings"):
        raise c.error("share_encoder_decoder_embeddings", "must be true")
    return _bart(c, positions=lambda n: n, embedding_norm=False, final_norm=False)
