"""Configs as transformers itself writes them are read as the class reads them."""

import json

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from cost_model.catalogue import model_config
from cost_model.specs import SpecError, from_config
from cost_model.specs.architectures import registered
from tests.cost_model.specs.meta import count
from tests.cost_model.specs.test_counts import variants
from tests.cost_model.specs.tiny import TINY


@pytest.mark.parametrize("model_type", sorted(TINY))
def test_a_config_that_the_class_wrote_is_counted_as_the_class_counts(model_type: str) -> None:
    class_name = registered()[model_type].default_class
    for config in variants(model_type, 2)[:2]:
        loaded = CONFIG_MAPPING[model_type].from_dict(dict(config))
        with torch.device("meta"):
            expected = count(getattr(transformers, class_name)(loaded))
        for written in (loaded.to_dict(), loaded.to_diff_dict()):
            document = json.loads(json.dumps(written, default=str)) | {"model_type": model_type}
            assert from_config(document).params == expected, config


def test_layers_that_differ_by_an_unknown_field_are_refused() -> None:
    config = model_config("llama-2-7b") | {"per_layer_config": {"0": {"intermediate_size": 8}}}
    with pytest.raises(SpecError) as caught:
        from_config(config)
    assert caught.value.pointer == "/per_layer_config"
