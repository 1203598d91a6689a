"""Parameter counts from transformers itself, on the meta device: no weights are made."""

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers.initialization import no_init_weights
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

transformers.logging.set_verbosity_error()

TEXT_PARTS = ("model.language_model.", "language_model.", "lm_head.", "model.text_model.")


def meta_model(config: Mapping[str, Any], class_name: str) -> Any:
    """The class on the meta device. `quantization_config` would swap its matrices: dropped."""
    plain = {k: v for k, v in config.items() if k != "quantization_config"}
    with torch.device("meta"), no_init_weights():
        model = getattr(transformers, class_name)(
            CONFIG_MAPPING[plain["model_type"]].from_dict(plain)
        )
    model.tie_weights()  # part of the initialization that is left out
    return model


def count(model: Any) -> int:
    """Parameters, tied ones once; buffers are none."""
    return sum(p.numel() for p in model.parameters())


def count_text(model: Any) -> int:
    """Parameters of the text tower of a model that also sees or hears."""
    return sum(p.numel() for name, p in model.named_parameters() if name.startswith(TEXT_PARTS))
