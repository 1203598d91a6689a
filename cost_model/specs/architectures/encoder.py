"""Encoders: BERT and those of its shape, with the heads of their classes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.gpt import (
    plain_attention,
    plain_layer,
    refuse_cross_attention,
)
from cost_model.specs.architectures.heads import number_of_labels
from cost_model.specs.architectures.stack import Head, Stack, architecture
from cost_model.specs.model import Layer


@dataclass(frozen=True)
class BertHeads:
    """How the classes of one family differ in their heads.

    A dense layer has hidden x hidden weights and a bias; a norm has two vectors.
    """

    pooled_model: bool = True
    """The bare model has a pooler."""
    pooled_classes: bool = True
    """Classification of sequences reads the pooler."""
    dense_classifier: bool = False
    """The classifier has a dense layer of its own before its output (RoBERTa, ELECTRA)."""
    width: int | None = None
    """Width of the token prediction where it is not the hidden size."""
    order_of_labels: bool = False
    """The second task of pre-training has as many outputs as there are labels (ALBERT), not 2."""
    second_bias: bool = True
    """Untied, the output matrix has a bias of its own beside that of the prediction."""

    def __call__(self, c: Fields, stack: Stack, class_name: str) -> Head | None:
        """The head of the class named; None for classes that are not supported."""
        if c.boolean("is_decoder"):
            raise c.error("is_decoder", "must be false: these models are supported as encoders")
        dense = stack.hidden * stack.hidden + stack.hidden
        for end, (beside, outputs) in self._classifiers(number_of_labels(c), dense).items():
            if class_name.endswith(end):
                own = beside + (stack.hidden + 1) * outputs
                return Head(stack.final_params + own, stack.hidden * outputs)
        if class_name.endswith("ForMaskedLM"):
            return self._token_head(stack, 0)
        if class_name.endswith("ForPreTraining"):
            outputs = number_of_labels(c) if self.order_of_labels else 2
            return self._token_head(stack, dense + (stack.hidden + 1) * outputs)
        if class_name.endswith("Model") and not class_name.endswith("LMHeadModel"):
            return Head(stack.final_params + (dense if self.pooled_model else 0))
        return None

    def _classifiers(self, labels: int, dense: int) -> dict[str, tuple[int, int]]:
        """Parameters beside the output matrix, and its outputs, by the end of the class's name."""
        sequence = dense * (self.pooled_classes + self.dense_classifier)
        return {
            "ForSequenceClassification": (sequence, labels),
            "ForTokenClassification": (0, labels),
            "ForQuestionAnswering": (0, labels),
            "ForNextSentencePrediction": (dense, 2),
        }

    def _token_head(self, stack: Stack, beside: int) -> Head:
        """Dense layer, norm and output matrix with its bias."""
        width = self.width or stack.hidden
        own = stack.hidden * width + width + 2 * width + stack.vocab
        own += 0 if stack.tied else stack.vocab * (width + self.second_bias)
        matmul = stack.hidden * width + stack.vocab * width
        return Head(stack.final_params + beside + own, matmul, stack.tied)


def bert_layers(c: Fields) -> Sequence[Layer]:
    """Post-norm layers with biases throughout."""
    hidden = c.integer("hidden_size")
    attention = plain_attention(c, hidden, "num_attention_heads", causal=False)
    return [plain_layer(hidden, attention, c.integer("intermediate_size"))] * c.layers()


def bert_stack(
    c: Fields,
    heads: BertHeads,
    *,
    layers: Sequence[Layer] | None = None,
    embedded: int | None = None,
    final_norm: bool = False,
    embedding_norm: bool = True,
    spare_positions: int = 0,
    types: bool = True,
) -> Stack:
    """Token, position and type tables with a norm, then the layers."""
    refuse_cross_attention(c)
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    width = hidden if embedded is None else embedded
    positions = c.integer("max_position_embeddings")
    kinds = c.integer("type_vocab_size", null=0, minimum=0) if types else 0
    tables = (vocab + positions + kinds) * width + 2 * width * embedding_norm
    tables += (width + 1) * hidden if width != hidden else 0
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=bert_layers(c) if layers is None else layers,
        embedding_params=tables,
        final_params=2 * hidden * final_norm,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=positions - spare_positions,
        norm="layernorm",
        position="learned",
        activation=c.text("hidden_act"),
        dropout=c.number("hidden_dropout_prob"),
        family="encoder",
        encoder_layers=c.layers(),
        task=heads,
    )


@architecture("bert", "BertForMaskedLM")
def bert(c: Fields) -> Stack:
    """BERT (arXiv 1810.04805)."""
    return bert_stack(c, BertHeads())


@architecture("ernie", "ErnieForMaskedLM")
def ernie(c: Fields) -> Stack:
    """ERNIE 1 to 3: BERT, with a table of tasks where `use_task_id` says so."""
    stack = bert_stack(c, BertHeads())
    if not c.boolean("use_task_id"):
        return stack
    tasks = c.integer("task_type_vocab_size") * stack.hidden
    return replace(stack, embedding_params=stack.embedding_params + tasks)


@architecture("megatron-bert", "MegatronBertForMaskedLM")
def megatron_bert(c: Fields) -> Stack:
    """Megatron's BERT (arXiv 1909.08053): norms before the sub-layers, one at the end."""
    return bert_stack(c, BertHeads(), final_norm=True, embedding_norm=False)


def _roberta(c: Fields) -> Stack:
    """RoBERTa (arXiv 1907.11692): positions begin behind the padding index."""
    heads = BertHeads(pooled_classes=False, dense_classifier=True)
    padding = c.optional_integer("pad_token_id", minimum=0)
    spare = 0 if padding is None else padding + 1
    if c.integer("max_position_embeddings") <= spare:
        spare = 0
    return bert_stack(c, heads, spare_positions=spare)


for _model_type, _class in (
    ("roberta", "RobertaForMaskedLM"),
    ("xlm-roberta", "XLMRobertaForMaskedLM"),
    ("camembert", "CamembertForMaskedLM"),
):
    architecture(_model_type, _class)(_roberta)


@architecture("electra", "ElectraForPreTraining")
def electra(c: Fields) -> Stack:
    """ELECTRA (arXiv 2003.10555): a narrow embedding, no pooler, a discriminator."""
    narrow = c.integer("embedding_size")

    @dataclass(frozen=True)
    class ElectraHeads(BertHeads):
        """The discriminator tells real tokens from replaced ones with two dense layers."""

        def __call__(self, c: Fields, stack: Stack, class_name: str) -> Head | None:
            if class_name.endswith("ForPreTraining"):
                hidden = stack.hidden
                return Head(hidden * hidden + hidden + hidden + 1, hidden * (hidden + 1))
            return super().__call__(c, stack, class_name)

    heads = ElectraHeads(
        pooled_model=False,
        pooled_classes=False,
        dense_classifier=True,
        width=narrow,
        second_bias=False,
    )
    return bert_stack(c, heads, embedded=narrow)


@architecture("albert", "AlbertForMaskedLM")
def albert(c: Fields) -> Stack:
    """ALBERT (arXiv 1909.11942): all layers of a group share their weights.

    The first layer of each group holds them; the others multiply with the same ones.
    """
    groups = c.integer("num_hidden_groups")
    if c.integer("inner_group_num") != 1:
        raise c.error("inner_group_num", "must be 1")
    count = c.layers()
    if groups > count:
        raise c.error("num_hidden_groups", f"must be at most the number of layers ({count})")
    narrow = c.integer("embedding_size")
    own = bert_layers(c)[0]
    shared = own.model_copy(update={"tp_sharded_params": 0, "replicated_params": 0})
    layers = [own] * groups + [shared] * (count - groups)
    heads = BertHeads(width=narrow, order_of_labels=True)
    stack = bert_stack(c, heads, layers=layers, embedded=narrow)
    if narrow == stack.hidden:  # the class projects even then
        stack = replace(stack, embedding_params=stack.embedding_params + (narrow + 1) * narrow)
    note = "layers share their weights: parameters are counted in the first of each group"
    return replace(stack, notes=(note,))
