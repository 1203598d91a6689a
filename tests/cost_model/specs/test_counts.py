"""Parameter counts equal those of the transformers classes."""

import random
import re
from typing import Any

import pytest
import transformers

from cost_model.specs import SpecError, from_config
from cost_model.specs.architectures import registered
from tests.cost_model.specs.meta import count, meta_model
from tests.cost_model.specs.tiny import TINY

WITHOUT_CLASS = {"nemotron-nas", "internlm2", "baichuan"}
"""Their class comes with the checkpoint."""
ONLY_WRAPPED = {name for name in registered() if name.endswith("_text") and name not in TINY}
"""Text towers that have no class of their own: they are counted inside the whole model."""
NEVER_TIED = {"dbrx"}


def variants(model_type: str, samples: int = 6) -> list[dict[str, Any]]:
    """The sizes with flags drawn from their values: each value at least once."""
    sizes, flags = TINY[model_type]
    draw = random.Random(model_type)
    most = max([samples, *(len(values) for values in flags.values())])
    out = []
    for i in range(most):
        chosen = {name: draw.choice(values) for name, values in flags.items()}
        for name, values in flags.items():
            if i < len(values):
                chosen[name] = values[i]
        if model_type not in NEVER_TIED:
            chosen["tie_word_embeddings"] = i % 2 == 0
        out.append({"model_type": model_type, **sizes, **chosen})
    return out


def test_every_supported_architecture_has_a_tiny_config() -> None:
    assert set(registered()) - WITHOUT_CLASS - ONLY_WRAPPED == set(TINY)


@pytest.mark.parametrize("model_type", sorted(TINY))
def test_count_equals_that_of_the_class_for_every_flag(model_type: str) -> None:
    class_name = registered()[model_type].default_class
    for config in variants(model_type):
        spec = from_config(config)
        assert spec.params == count(meta_model(config, class_name)), config


HEADS = (
    "Model",
    "ForCausalLM",
    "ForMaskedLM",
    "ForPreTraining",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForNextSentencePrediction",
    "EncoderModel",
)


def siblings(class_name: str) -> list[str]:
    """The other classes of a family that transformers has, such as LlamaModel for Llama."""
    stem = re.sub(r"(For[A-Z]\w+|LMHeadModel|MTModel)$", "", class_name)
    return [stem + head for head in HEADS if hasattr(transformers, stem + head)]


@pytest.mark.parametrize("model_type", sorted(TINY))
def test_other_heads_are_counted_or_refused_never_miscounted(model_type: str) -> None:
    config = variants(model_type)[1] | {"id2label": {0: "a", 1: "b", 2: "c"}}
    for class_name in siblings(registered()[model_type].default_class):
        try:
            spec = from_config(config | {"architectures": [class_name]})
        except SpecError as error:
            assert error.pointer in {"/architectures/0", "/is_decoder"}  # noqa: PT017
            continue
        try:
            model = meta_model(config, class_name)
        except (AttributeError, ValueError):
            continue  # some heads are for the whole model of a text tower, or for two labels
        assert spec.params == count(model), class_name
