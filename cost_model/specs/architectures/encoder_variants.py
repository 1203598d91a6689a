"""Encoders that depart from BERT: names of their own, relative positions, gated MLPs."""

from dataclasses import replace

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.encoder import BertHeads, bert_layers, bert_stack
from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.gpt import plain_attention, plain_layer
from cost_model.specs.architectures.heads import number_of_labels
from cost_model.specs.architectures.stack import Head, Stack, architecture
from cost_model.specs.architectures.weights import (
    Weights,
    attention_weights,
    column,
    layer,
    mlp_weights,
    vector,
)
from cost_model.specs.model import Mlp


@architecture("distilbert", "DistilBertForMaskedLM")
def distilbert(c: Fields) -> Stack:
    """DistilBERT (arXiv 1910.01108): no types, no pooler."""
    hidden = c.integer("dim")
    vocab = c.integer("vocab_size")
    positions = c.integer("max_position_embeddings")
    attention = plain_attention(c, hidden, "n_heads", causal=False)
    count = c.layers("n_layers")

    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[plain_layer(hidden, attention, c.integer("hidden_dim"))] * count,
        embedding_params=(vocab + positions) * hidden + 2 * hidden,
        final_params=0,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=positions,
        norm="layernorm",
        position="none" if c.boolean("sinusoidal_pos_embds") else "learned",
        activation=c.text("activation"),
        dropout=c.number("dropout"),
        family="encoder",
        encoder_layers=count,
        task=BertHeads(
            pooled_model=False, pooled_classes=False, dense_classifier=True, second_bias=False
        ),
    )


@architecture("mpnet", "MPNetForMaskedLM")
def mpnet(c: Fields) -> Stack:
    """MPNet (arXiv 2004.09297): one table of relative positions for all layers."""
    heads = BertHeads(pooled_classes=False, dense_classifier=True)
    stack = bert_stack(c, heads, spare_positions=2, types=False)
    table = c.integer("relative_attention_num_buckets") * c.integer("num_attention_heads")
    return replace(stack, embedding_params=stack.embedding_params + table)


@architecture("deberta-v2", "DebertaV2ForMaskedLM")
def deberta_v2(c: Fields) -> Stack:
    """DeBERTa v2 and v3 (arXiv 2006.03654): relative positions with matrices of their own."""
    hidden = c.integer("hidden_size")
    narrow = c.integer("embedding_size", null=hidden)
    relative = c.boolean("relative_attention")
    positions = c.integer("max_position_embeddings")
    biased = c.boolean("position_biased_input", null=True)
    tables = c.integer("vocab_size") + (positions if biased else 0)
    tables = (tables + c.integer("type_vocab_size", null=0, minimum=0)) * narrow + 2 * hidden
    tables += narrow * hidden if narrow != hidden else 0
    one = bert_layers(c)[0]
    if relative:
        tables += _deberta_relative_table(c, hidden, positions)
        if not c.boolean("share_att_key"):
            kinds = _position_kinds(c)
            extra = column(hidden, hidden, bias=True).sharded * len(kinds & {"c2p", "p2c"})
            one = one.model_copy(update={"tp_sharded_params": one.tp_sharded_params + extra})
    norms = c.text("norm_rel_ebd", null="none").lower().split("|")
    tables += 2 * hidden * ("layer_norm" in {name.strip() for name in norms})
    final = 0
    kernel = c.integer("conv_kernel_size", null=0, minimum=0)
    if kernel:
        groups = c.integer("conv_groups", null=1)
        final = hidden * (hidden // groups) * kernel + hidden + 2 * hidden

    stack = bert_stack(
        c, BertHeads(pooled_model=False), layers=[one] * c.layers(), embedding_norm=True
    )
    return replace(
        stack,
        embedding_params=tables,
        final_params=final,
        position="relative" if relative else "learned",
    )


def _deberta_relative_table(c: Fields, hidden: int, positions: int) -> int:
    """The table of relative positions."""
    reach = c.optional_integer("max_relative_positions", minimum=-1) or -1
    buckets = c.optional_integer("position_buckets", minimum=-1) or -1
    rows = 2 * (buckets if buckets > 0 else reach if reach > 0 else positions)
    return rows * hidden


def _position_kinds(c: Fields) -> set[str]:
    """`pos_att_type`: a list, or one text with bars."""
    value = c.value("pos_att_type")
    if isinstance(value, str):
        return {part.strip() for part in value.lower().split("|")}
    return set(c.texts("pos_att_type") or ())


@architecture("modernbert", "ModernBertForMaskedLM")
def modernbert(c: Fields) -> Stack:
    """ModernBERT (arXiv 2412.13663): gated MLPs, rotary positions, windows on two of three."""
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    count = c.layers()
    bias = c.boolean("attention_bias")
    vectors = 2 if c.boolean("norm_bias") else 1
    mlp = Mlp(intermediate=c.integer("intermediate_size"), gated=True, bias=c.boolean("mlp_bias"))
    kinds = windows.layer_types(c, count)
    period = c.integer("global_attn_every_n_layers", null=3)
    layers = []
    for i in range(count):
        slides = kinds[i] == "sliding_attention" if kinds else i % period != 0
        attention = plain_attention(
            c,
            hidden,
            "num_attention_heads",
            qkv_bias=bias,
            out_bias=bias,
            causal=False,
            window=c.integer("local_attention") if slides else None,
        )
        norms = 2 if i else 1  # the first layer reads the embedding's norm
        weights: Weights = (
            attention_weights(hidden, attention)
            + mlp_weights(hidden, mlp)
            + vector(norms * vectors * hidden)
        )
        layers.append(layer(weights, norms=norms, attention=attention, mlp=mlp))
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=layers,
        embedding_params=vocab * hidden + vectors * hidden,
        final_params=vectors * hidden,
        tied=c.boolean("tie_word_embeddings"),
        head_bias=c.boolean("decoder_bias"),
        max_seq_len=c.optional_integer("max_position_embeddings"),
        norm="layernorm",
        activation=c.text("hidden_activation"),
        dropout=c.number("mlp_dropout"),
        family="encoder",
        encoder_layers=count,
        task=_modernbert_head,
    )


def _modernbert_head(c: Fields, stack: Stack, class_name: str) -> Head | None:
    """A dense layer and a norm stand before every output."""
    hidden = stack.hidden
    norm = (2 if c.boolean("norm_bias") else 1) * hidden
    dense = hidden * hidden + hidden * c.boolean("classifier_bias") + norm
    labels = number_of_labels(c)
    if class_name.endswith("ForMaskedLM"):
        own = 0 if stack.tied else stack.vocab * hidden
        own += stack.head_bias * stack.vocab
        return Head(stack.final_params + dense + own, hidden * (hidden + stack.vocab), stack.tied)
    if class_name.endswith(("ForSequenceClassification", "ForTokenClassification")):
        return Head(stack.final_params + dense + (hidden + 1) * labels, hidden * (hidden + labels))
    if class_name.endswith("ForQuestionAnswering"):
        return Head(stack.final_params + dense + (hidden + 1) * labels, hidden * (hidden + labels))
    if class_name.endswith("Model"):
        return Head(stack.final_params)
    return None
