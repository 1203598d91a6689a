"""What follows the last layer, by task: the class that `architectures` names decides."""

from dataclasses import dataclass

from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.stack import Stack


@dataclass(frozen=True)
class Head:
    """Parameters of the last stage, and the weights each token multiplies there."""

    params: int
    matmul: int
    tied: bool


def language_head(stack: Stack) -> Head:
    """The output matrix over the vocabulary, tied to the token table or not."""
    vocab = stack.vocab if stack.head_vocab is None else stack.head_vocab
    width = stack.hidden if stack.head_width is None else stack.head_width
    own = 0 if stack.tied else vocab * width
    return Head(stack.final_params + own + stack.head_bias * vocab, vocab * width, stack.tied)


def head(c: Fields, stack: Stack, class_name: str) -> Head | None:
    """The head of a class on a decoder; None where the class is not known."""
    none = Head(stack.final_params, 0, False)
    labels = number_of_labels(c)
    width = stack.hidden
    if class_name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        return language_head(stack)
    if class_name.endswith("ForSequenceClassification"):
        return Head(none.params + width * labels, 0, False)
    if class_name.endswith("ForTokenClassification"):
        return Head(none.params + (width + 1) * labels, 0, False)
    if class_name.endswith("ForQuestionAnswering"):
        return Head(none.params + (width + 1) * 2, 0, False)
    if class_name.endswith("Model"):
        return none
    return None


def number_of_labels(c: Fields) -> int:
    """Labels of a classifier: the length of `id2label`, else `num_labels`, else 2."""
    names = c.value("id2label")
    if names is not None:
        return len(c.sub("id2label").data)
    return c.integer("num_labels", null=2)
