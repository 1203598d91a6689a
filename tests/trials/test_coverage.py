"""Every architecture of the catalogue is built whole and trains, or says why it is not."""

import pytest
import torch

from cost_model.specs import from_config
from tests.cost_model.specs.test_counts import variants
from tests.cost_model.specs.tiny import TINY
from trials.model import Build, build_model
from trials.model.transformer import parameter_count
from trials.model.unsupported import UnsupportedModel

ENCODER_DECODER = "encoder-decoder models"
NOT_BUILT = {
    **dict.fromkeys(("t5", "mt5", "umt5", "switch_transformers"), ENCODER_DECODER),
    **dict.fromkeys(("bart", "mbart", "pegasus", "blenderbot"), ENCODER_DECODER),
    **dict.fromkeys(("m2m_100", "marian"), ENCODER_DECODER),
    "albert": "share weights",
    "electra": "no matrix from the hidden size to the vocabulary",
    "gemma3n_text": "share weights",
    "mllama_text_model": "cross-attention",
}
"""What trials do not train, with words of the reason that the user is given."""
SOMETIMES = {"opt", "gemma4_text"}
"""Built in their plain form: not with a table narrower than the hidden size, not with keys and
values that layers share."""


@pytest.mark.parametrize("model_type", sorted(TINY))
def test_an_architecture_has_its_parameters_and_its_loss_falls(model_type: str) -> None:
    spec = from_config({"model_type": model_type, **TINY[model_type][0]})
    if model_type in NOT_BUILT:
        with pytest.raises(UnsupportedModel, match=NOT_BUILT[model_type]):
            build_model(Build(spec))
        return
    model = build_model(Build(spec), seed=1)
    assert parameter_count(model) == spec.params
    draw = torch.Generator().manual_seed(2)
    ids = torch.randint(0, spec.vocab, (2, 17), generator=draw)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model(ids[:, :-1], ids[:, 1:])
    before.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    optimizer.step()
    assert model(ids[:, :-1], ids[:, 1:]) < before


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(set(TINY) - set(NOT_BUILT) - SOMETIMES))
def test_every_variant_of_an_architecture_is_built_whole(model_type: str) -> None:
    for config in variants(model_type):
        spec = from_config(config)
        with torch.device("meta"):
            assert parameter_count(build_model(Build(spec))) == spec.params, config
