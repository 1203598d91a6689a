"""The note on a simpler plan that is as good."""

from dataclasses import replace
from typing import Any

from cost_model.plans import Plan
from planner.candidate import Candidate
from planner.search import search
from planner.search.simplest import simpler
from tests.planner.requests import resolve


def _candidate(rank: int, seconds: float, **knobs: Any) -> Candidate:
    any_one = search(resolve()).candidates[0]
    step = replace(any_one.step, seconds=seconds)
    return replace(
        any_one, rank=rank, step=step, plan=Plan.model_validate(knobs), fits_probability=0.9
    )


def test_a_plan_with_fewer_extras_and_a_third_of_a_percent_slower_is_named() -> None:
    best = _candidate(1, 3.0, offload_param="cpu", zero_stage=3, chunked_loss=True)
    other = _candidate(2, 3.001, offload_optimizer="cpu", zero_stage=3)
    plain = _candidate(3, 3.01, zero_stage=3)
    said = simpler([best, other, plain])
    assert said is not None
    assert said.startswith("Plan 3 does without offload_param, chunked_loss and is 0.3 % slower")


def test_a_simpler_plan_that_is_five_percent_slower_is_not_named() -> None:
    best = _candidate(1, 3.0, recompute="none", chunked_loss=True)
    assert simpler([best, _candidate(2, 3.15)]) is None


def test_the_simplest_plan_needs_no_note() -> None:
    assert simpler([_candidate(1, 3.0), _candidate(2, 3.0, chunked_loss=True)]) is None
    assert simpler([]) is None
