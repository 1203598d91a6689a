"""What follows the last layer of a decoder: the class that `architectures` names decides."""

from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.stack import Head, Stack


def language_head(stack: Stack) -> Head:
    """The output matrix over the vocabulary, tied to the token table or not."""
    vocab = stack.vocab if stack.head_vocab is None else stack.head_vocab
    width = stack.hidden if stack.head_width is None else stack.head_width
    own = 0 if stack.tied else vocab * width
    return Head(stack.final_params + own + stack.head_bias * vocab, vocab * width, stack.tied)


def head(c: Fields, stack: Stack, class_name: str) -> Head | None:
    """The head of a class; None where the class is not supported."""
    if stack.task is not None:
        return stack.task(c, stack, class_name)
    if class_name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        return language_head(stack)
    for end, (outputs, bias) in _classifiers(number_of_labels(c)).items():
        if class_name.endswith(end):
            width = stack.hidden if stack.head_width is None else stack.head_width
            return Head(stack.final_params + (width + bias) * outputs, width * outputs)
    if class_name.endswith("Model") and not class_name.endswith("DoubleHeadsModel"):
        return Head(stack.final_params)
    return None


def _classifiers(labels: int) -> dict[str, tuple[int, bool]]:
    """Outputs, and whether they have biases, by the end of the class's name."""
    return {
        "ForSequenceClassification": (labels, False),
        "ForTokenClassification": (labels, True),
        "ForQuestionAnswering": (2, True),
    }


def number_of_labels(c: Fields) -> int:
    """Labels of a classifier: the length of `id2label`, else `num_labels`, else 2."""
    if c.value("id2label") is not None:
        return len(c.sub("id2label").data)
    return c.integer("num_labels", null=2)
