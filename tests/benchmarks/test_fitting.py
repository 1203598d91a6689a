"""Fitting recovers what it should, on runs that the cost model made up itself."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_model.calibration import Coefficients
from tests.benchmarks.fitting.folds import time_folds
from tests.benchmarks.fitting.parameters import Parameter, document, with_values
from tests.benchmarks.fitting.spread import (
    COVERED,
    Z90,
    Shares,
    coverage,
    memory_spread,
    stated_sigmas,
    time_spreads,
)
from tests.benchmarks.fitting.step_times import StepTimes
from tests.benchmarks.rows import Row, read_directory

PUBLISHED = Path(__file__).parents[1] / "published"
A100 = ("a100-40g-sxm", "a100-80g-sxm")
GEMM = Parameter(
    tuple(("gpus", name, "gemm_efficiency") for name in A100),
    low=0.3,
    high=0.98,
    expected=0.7,
    spread=1.0,
)


def made_up(efficiency: float) -> tuple[list[Row], Coefficients]:
    """Published A100 runs as they would have been at that efficiency of matrix products."""
    base = Coefficients.default()
    rows = [
        r
        for r in read_directory(PUBLISHED)
        if isinstance(r, Row) and r.gpu_text in A100 and r.source in ("megatron_sc21", "megascale")
    ]
    problem = StepTimes(rows, with_values(document(base), [GEMM], [efficiency]), [GEMM])
    seconds = np.exp(problem.log_ratios(problem.start)) * problem.measured
    return [
        replace(r, measured=replace(r.measured, seconds=float(s)))
        for r, s in zip(problem.rows, seconds, strict=True)
    ], base


def test_an_efficiency_is_recovered_from_step_times() -> None:
    rows, base = made_up(0.61)
    logs, ratios, _ = StepTimes(rows, base, [GEMM]).solve(6)
    assert float(np.exp(logs[0])) == pytest.approx(0.61, rel=0.01)
    assert np.abs(ratios).max() < 0.01


def test_without_rows_a_figure_returns_to_what_is_expected() -> None:
    rows, base = made_up(0.61)
    problem = StepTimes(rows, base, [GEMM])
    nothing = np.zeros(len(rows), dtype=np.bool_)
    logs, ratios, jacobian = problem.solve(3)
    alone = problem.step(logs, ratios, jacobian, nothing)
    assert float(np.exp(alone[0])) == pytest.approx(GEMM.expected, rel=1e-6)


def test_every_row_is_held_out_once() -> None:
    rows, base = made_up(0.7)
    problem = StepTimes(rows, base, [GEMM])
    folds = list(time_folds(rows, (problem, *problem.solve(2)), lambda row: row.family))
    assert sorted(int(i) for fold in folds for i in fold.rows) == list(range(len(rows)))
    assert len(folds) > 3


def test_spreads_make_ninety_per_cent_intervals_cover_ninety_per_cent() -> None:
    rows, _ = made_up(0.7)
    rng = np.random.default_rng(0)
    many = [rows[i % len(rows)] for i in range(2000)]
    errors = rng.normal(0, 0.1, len(many))
    nothing = Shares(np.zeros(len(many)), np.zeros(len(many)))
    found = time_spreads(many, errors, nothing)
    inside = np.abs(errors) <= Z90 * stated_sigmas(many, nothing, found)
    assert inside.mean() == pytest.approx(COVERED, abs=0.01)
    assert coverage(errors, memory_spread(errors)) == pytest.approx(0.9, abs=0.01)


def test_steps_that_wait_for_transfers_have_wider_intervals() -> None:
    rows, _ = made_up(0.7)
    rng = np.random.default_rng(1)
    many = [rows[i % len(rows)] for i in range(2000)]
    waits = np.tile([0.0, 0.5], 1000)
    errors = rng.normal(0, 1, len(many)) * np.where(waits > 0, 0.25, 0.05)
    shares = Shares(np.zeros(len(many)), waits)
    sigmas = stated_sigmas(many, shares, time_spreads(many, errors, shares))
    assert sigmas[waits > 0].mean() > 3 * sigmas[waits == 0].mean()
