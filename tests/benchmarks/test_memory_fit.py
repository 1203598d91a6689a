"""Fitting the figures of memory recovers what it should, on runs that the model made up itself."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_model.calibration.memory import MemoryCoefficients, default_memory_coefficients
from cost_model.memory import memory
from cost_model.plans import PlanTable, Software
from tests.benchmarks.ask import memory_of
from tests.benchmarks.fitting.memory_figures import FIGURES, changed, read
from tests.benchmarks.fitting.memory_fit import PeakMemory, memory_folds
from tests.benchmarks.rows import Row, read_directory

PUBLISHED = Path(__file__).parents[1] / "published"
FLOOR = next(i for i, f in enumerate(FIGURES) if f.name == "software/megatron/cache_floor_gib")


def made_up(floor: float) -> list[Row]:
    """Published Megatron runs with the reserved memory that they would have at that floor."""
    document = json.loads(default_memory_coefficients().model_dump_json())
    known = MemoryCoefficients.model_validate(changed(document, (FIGURES[FLOOR],), [floor]))
    found = []
    for read_row in read_directory(PUBLISHED):
        if not isinstance(read_row, Row) or read_row.training.stack is not None:
            continue
        if read_row.plan.software is not Software.MEGATRON:
            continue
        kind = replace(read_row.measured, memory_bytes=1.0, memory_kind="reserved", oom=False)
        row = replace(read_row, measured=kind)
        table = PlanTable.from_plans([row.plan])
        said = memory(row.model, row.cluster, row.training, table, known)
        held = memory_of(row, said, 0, known)
        if held < 0.9 * row.cluster.node.gpu.memory_gib * 2**30:  # nothing presses it
            found.append(replace(row, measured=replace(kind, memory_bytes=held)))
    return found


def test_what_the_cache_holds_at_least_is_recovered_from_reserved_memory() -> None:
    rows = made_up(1.5)
    problem = PeakMemory(rows, default_memory_coefficients())
    fit = problem.solve(3)
    assert len(problem.rows) > 10
    assert math.exp(fit.logs[FLOOR]) == pytest.approx(1.5, rel=0.2)


def test_without_rows_a_figure_returns_to_what_is_expected() -> None:
    problem = PeakMemory(made_up(1.5)[:3], default_memory_coefficients())
    fit = problem.solve(1)
    alone = problem.step(fit, np.zeros(len(problem.rows), dtype=np.bool_))
    assert np.exp(alone) == pytest.approx([f.expected for f in FIGURES])


def test_every_family_has_coefficients_of_its_own() -> None:
    rows = made_up(1.5)[:6]
    problem = PeakMemory(rows, default_memory_coefficients())
    by: Callable[[Row], str] = lambda row: row.family  # noqa: E731 - the type of a parameter
    folds = memory_folds(rows, (problem, problem.solve(1)), by)
    assert set(folds) == {row.family for row in rows}


def test_every_figure_is_within_its_bounds_where_it_is_shipped() -> None:
    document = json.loads(default_memory_coefficients().model_dump_json())
    for figure in FIGURES:
        assert figure.low <= read(document, figure) <= figure.high, figure.name
        assert figure.low <= figure.expected <= figure.high, figure.name
