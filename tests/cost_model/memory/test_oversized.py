"""Gradients larger than a bucket under ZeRO 1."""

import pytest

from cost_model.catalogue import model
from cost_model.memory import detail
from cost_model.plans import Plan
from cost_model.specs import TrainingSpec
from tests.cost_model.memory.samples import GIB, dgx


def at_the_end(name: str, **knobs: object) -> float:
    """GiB of gradients at the end of the backward pass."""
    plan = Plan(**{"dp": 64, "zero_stage": 1, **knobs})
    training = TrainingSpec(seq_len=4096, global_batch=plan.global_batch)
    found = detail(model(name), dgx(8), training, plan)
    return max(m.categories["gradients"] for m in found.moments if m.moment == "backward_end") / GIB


def test_zero_1_keeps_stacked_experts_until_the_step_and_zero_2_does_not() -> None:
    """Mixtral: 32 layers x 8 experts x 2 x 14336 x 4096 elements of 2 bytes are 56 GiB."""
    one, two = (at_the_end("mixtral-8x7b", zero_stage=stage) for stage in (1, 2))
    assert one - two == pytest.approx(32 * 8 * 2 * 14336 * 4096 * 2 / GIB)
    assert one - two == pytest.approx(56)


def test_a_bucket_of_hidden_squared_holds_no_matrix_of_the_feed_forward() -> None:
    """Llama-2-7B: 32 x 3 x 11008 x 4096 elements and two tables of 32000 x 4096, 2 bytes each."""
    small = at_the_end("llama-2-7b", reduce_bucket=4096 * 4096)
    large = at_the_end("llama-2-7b")
    elements = 32 * 3 * 11008 * 4096 + 2 * 32000 * 4096
    assert small - large == pytest.approx(elements * 2 / GIB)


@pytest.mark.parametrize("knobs", [{"overlap_comm": False}, {"grad_accum": 2}])
def test_where_zero_1_holds_all_gradients_the_bucket_does_not_matter(
    knobs: dict[str, object],
) -> None:
    assert at_the_end("llama-2-7b", reduce_bucket=10**7, **knobs) == at_the_end(
        "llama-2-7b", **knobs
    )
