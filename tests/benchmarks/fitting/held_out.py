"""Answers for rows from coefficients that never saw their model family."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from rich.console import Console

from cost_model.calibration import Coefficients
from cost_model.plans import Floats
from tests.benchmarks.ask import Answers, ask
from tests.benchmarks.fitting.folds import solved, time_folds
from tests.benchmarks.fitting.memory_figures import FIGURES
from tests.benchmarks.fitting.memory_fit import Fit, PeakMemory, memory_folds, memory_solved
from tests.benchmarks.fitting.step_times import StepTimes
from tests.benchmarks.rows import Row

Solution = tuple[StepTimes, Floats, Floats, Floats]


def ask_out_of_fold(
    rows: Sequence[Row],
    console: Console | None = None,
    *,
    iterations: int = 2,
    solution: Solution | None = None,
    memory: tuple[PeakMemory, Fit] | None = None,
    by: Callable[[Row], str] = lambda row: row.family,
) -> Answers:
    """Answers in the order of the rows, each family from the coefficients fitted without it.

    Of the memory model the few figures of memory_figures.py are refitted, the rest is read in the
    software's source code. iterations: of the fit to all rows that the folds start from, unless it
    is given as `solution` and `memory`. by: what is held out together.
    """
    at = solution or solved(rows, Coefficients.default(), iterations)
    held = memory or memory_solved(rows)
    if console is not None:
        console.print(
            f"fitted {len(at[0].parameters)} figures to {len(at[0].rows)} step times,"
            f" {len(FIGURES)} to {len(held[0].rows)} peaks and outcomes"
        )
    without = memory_folds(rows, held, by)
    parts = [
        (f.rows, ask([rows[i] for i in f.rows], f.coefficients, without[f.family]))
        for f in time_folds(rows, at, by)
    ]
    return _joined(len(rows), parts)


def ask_memory_out_of_fold(
    rows: Sequence[Row],
    console: Console | None = None,
    by: Callable[[Row], str] = lambda row: row.family,
) -> Answers:
    """The same with the shipped coefficients of step time: memory and outcomes alone, quicker."""
    held = memory_solved(rows)
    if console is not None:
        console.print(f"fitted {len(FIGURES)} figures to {len(held[0].rows)} peaks and outcomes")
    of_row = np.array([by(r) for r in rows])
    parts = []
    for family, without in memory_folds(rows, held, by).items():
        at = np.flatnonzero(of_row == family)
        parts.append((at, ask([rows[int(i)] for i in at], None, without)))
    return _joined(len(rows), parts)


def _joined(n: int, parts: Sequence[tuple[Any, Answers]]) -> Answers:
    joined: dict[str, object] = {}
    for field in fields(Answers):
        values = [(where, getattr(answers, field.name)) for where, answers in parts]
        if isinstance(values[0][1], dict):
            names = {name for _, value in values for name in value}
            joined[field.name] = {
                name: _scattered(n, [(w, v[name]) for w, v in values if name in v])
                for name in sorted(names)
            }
        else:
            joined[field.name] = _scattered(n, values)
    return Answers(**joined)  # type: ignore[arg-type]


def _scattered(n: int, parts: Sequence[tuple[Any, Any]]) -> Any:
    out = np.zeros(n, dtype=parts[0][1].dtype)
    for where, values in parts:
        out[where] = values
    return out
