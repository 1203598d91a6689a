"""Trials that ran and are wrong all the same."""

import math

import pytest

from cost_model.plans import Plan
from trials.diagnose import diagnose
from trials.outcome import Outcome
from trials.result import Finding, RankReport, StepMeasurement


def rank(number: int, losses: list[float], norms: list[float]) -> RankReport:
    steps = tuple(
        StepMeasurement(
            seconds=1.0,
            forward=0.3,
            backward=0.6,
            step=0.1,
            communication={},
            traffic_bytes={},
            loss=loss,
            grad_norm=norm,
            tokens=1,
        )
        for loss, norm in zip(losses, norms, strict=True)
    )
    return RankReport(
        rank=number, host="h", device="cpu", outcome=Outcome(kind="ok"), warmup=steps[:1],
        steps=steps[1:],
    )  # fmt: skip


def findings(*ranks: RankReport, same_batch: bool = False, **plan: object) -> list[Finding]:
    return diagnose(Plan.model_validate(plan), ranks, same_batch=same_batch)


FALLING = [5.0, 4.9, 4.8]


def test_a_trial_in_which_all_is_well_has_no_findings() -> None:
    both = rank(0, FALLING, [1.0, 1.0, 1.0]), rank(1, FALLING, [1.0, 1.001, 1.0])
    assert findings(*both, same_batch=True) == []


def test_ranks_with_other_gradient_norms_were_left_out_of_a_reduction() -> None:
    # Ulysses with the wrong groups: norms 2.628 and 1.314, for example
    (found,) = findings(rank(0, FALLING, [2.6, 2.6, 2.6]), rank(1, FALLING, [2.6, 1.3, 2.6]))
    assert found.name == "gradient norms differ"
    assert "step 1" in found.message
    (found,) = findings(rank(0, FALLING, [1.0] * 3), rank(1, FALLING, [1.0, math.nan, 1.0]))
    assert "not a number on another" in found.message


def test_a_loss_that_leaves_the_numbers_after_the_first_recomputed_step_says_where_to_look() -> (
    None
):
    (found,) = findings(rank(0, [5.0, math.nan, math.nan], [1.0] * 3), recompute="full")
    assert found.name == "loss not a number"
    assert "step 1" in found.message
    assert "random state" in found.message


def test_a_loss_that_was_never_a_number_is_found_too() -> None:
    (found,) = findings(rank(0, [math.nan] * 3, [1.0] * 3), recompute="full")
    assert "step 0" in found.message
    assert "random state" not in found.message


def test_a_loss_that_stays_on_a_repeated_batch_does_not_train() -> None:
    still = rank(0, [5.0, 5.0, 5.0], [1.0] * 3)
    (found,) = findings(still, same_batch=True)
    assert found.name == "loss does not fall"
    assert findings(still) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_report_of_what_is_no_number_is_read_again(value: float) -> None:
    report = rank(0, [5.0, value], [1.0, value])
    again = RankReport.model_validate_json(report.model_dump_json())
    assert str(again.steps[0].loss) == str(value)
    assert str(again.steps[0].grad_norm) == str(value)
