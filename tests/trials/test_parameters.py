"""The trial model has as many parameters as the spec says, for every preset it covers."""

import pytest
import torch

from cost_model.catalogue import model, model_names
from cost_model.specs import Lora
from tests.trials.models import decoder
from trials.model import Build, build_model
from trials.model.transformer import parameter_count
from trials.model.unsupported import UnsupportedModel

NOT_BUILT = {"opt-350m"}
"""Its token table is narrower than its hidden size."""


@pytest.mark.parametrize("name", model_names())
def test_a_preset_has_the_parameters_of_its_spec(name: str) -> None:
    spec = model(name)
    with torch.device("meta"):
        if spec.family == "encoder_decoder" or name in NOT_BUILT:
            with pytest.raises(UnsupportedModel):
                build_model(Build(spec))
            return
        assert parameter_count(build_model(Build(spec))) == spec.params


def test_adapters_alone_are_trained_under_lora() -> None:
    spec = decoder(hidden=64, width=96, layers=2)
    built = build_model(Build(spec, lora=Lora(rank=4)), seed=1)
    trained = sum(p.numel() for p in built.parameters() if p.requires_grad)
    # rank x (in + out) of 4 attention matrices and 3 of the MLP, in each of 2 layers
    assert trained == 2 * 4 * (4 * (64 + 64) + 3 * (64 + 96))


def test_a_quantized_base_holds_half_a_byte_a_weight_and_its_constants() -> None:
    spec = decoder(hidden=64, width=128, layers=1)
    built = build_model(Build(spec, lora=Lora(rank=4, quantized_base=True)), seed=1)
    held = {name: b for name, b in built.named_buffers() if name.endswith(("codes", "scales"))}
    weights = 4 * 64 * 64 + 3 * 64 * 128
    assert sum(b.numel() for n, b in held.items() if n.endswith("codes")) == weights // 2
    assert sum(b.numel() for n, b in held.items() if n.endswith("scales")) == weights // 64


def test_nf4_gives_back_its_own_levels() -> None:
    from trials.model.lora import NF4, dequantize, quantize

    weight = torch.tensor(NF4).repeat(8).reshape(2, 64) * 3
    codes, scales = quantize(weight)
    assert torch.allclose(dequantize(codes, scales, (2, 64), torch.float32), weight)
