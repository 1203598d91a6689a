"""Coefficients that trials have calibrated go into every figure of an answer."""

from dataclasses import replace

import pytest

from cost_model.calibration import Coefficients
from planner.explain import around, why_not
from planner.request import Resolved
from planner.search import search
from tests.planner.requests import resolve


def _slow_host(resolved: Resolved, seconds: float) -> Resolved:
    """The request with so many seconds more for each step, whatever the software."""
    raw = Coefficients.default().model_dump()
    for one in raw["software"].values():
        one["step_ms"] += 1e3 * seconds
        one["straggle"] = 0.0
    return replace(resolved, coefficients=Coefficients.model_validate(raw))


def test_the_ranking_is_that_of_the_calibrated_coefficients() -> None:
    resolved = resolve(keep=1)
    shipped = search(resolved).candidates[0]
    calibrated = search(_slow_host(resolved, 3.0)).candidates[0]
    assert calibrated.plan == shipped.plan
    assert calibrated.step.seconds == pytest.approx(shipped.step.seconds + 3.0, rel=1e-6)


def test_explanations_use_them_too() -> None:
    resolved = _slow_host(resolve(keep=1), 3.0)
    best = search(resolved).candidates[0]
    own = around(resolved, best.plan).candidate
    assert own.step.seconds == pytest.approx(best.step.seconds)
    asked = why_not(resolved, {"zero_stage": best.plan.zero_stage}, best)
    assert asked.verdict == "is the best"
