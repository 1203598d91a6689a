"""The entropy of routers, and its gradient's direction."""

import math

import pytest
import torch

from tests.trials.models import decoder
from trials.entropy import RouterEntropy, load_statistics, router_entropy
from trials.model import Build, build_model


def test_decided_tokens_that_differ_have_full_mean_entropy_and_none_of_their_own() -> None:
    logits = 100.0 * torch.eye(4)
    assert float(router_entropy(logits, "mean")) == pytest.approx(math.log(4), abs=1e-5)
    assert float(router_entropy(logits, "token")) == pytest.approx(0.0, abs=1e-5)


def test_a_step_along_the_bonus_balances_a_skewed_router() -> None:
    logits = torch.tensor([[3.0, 0.0, 0.0, 0.0]] * 8, requires_grad=True)
    before = router_entropy(logits)
    (-before).backward()
    assert logits.grad is not None
    after = router_entropy(logits.detach() - logits.grad)
    assert after > before


def test_every_router_of_a_model_adds_to_the_loss() -> None:
    model = build_model(Build(decoder(experts=4, layers=2)), seed=1)
    ids = torch.zeros((1, 8), dtype=torch.long)
    with RouterEntropy(0.5).watching(model) as bonus:
        model(ids, ids)
        assert -0.5 * math.log(4) <= float(bonus.take_loss().detach()) < 0
        with pytest.raises(ValueError, match="no router has run"):
            bonus.take_loss()


def test_load_statistics_of_one_overloaded_expert() -> None:
    found = load_statistics(torch.tensor([[0], [0], [0], [1]]), 4, capacity=2)
    assert found["max_over_mean"] == 3.0
    assert found["dropped"] == 0.25
    # loads 3, 1, 0, 0: mean 1, variance 1.5
    assert found["cv"] == pytest.approx(math.sqrt(1.5))
