"""Each model family predicted with coefficients fitted without it.

From the fit to all rows, one Gauss-Newton step on the rows of the other families gives the fit
without the family: the same Jacobian serves every fold. Second-order terms are neglected; the
held-out rows are then predicted with the exact model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cost_model.calibration import Coefficients
from cost_model.plans import Floats
from tests.benchmarks.fitting.parameters import free_parameters
from tests.benchmarks.fitting.step_times import StepTimes
from tests.benchmarks.rows import Row


@dataclass(frozen=True)
class Fold:
    """One family and the coefficients fitted without it."""

    family: str
    rows: npt.NDArray[np.int64]
    """Places in the list of all rows."""
    coefficients: Coefficients


def time_folds(
    rows: Sequence[Row],
    solution: tuple[StepTimes, Floats, Floats, Floats],
    by: Callable[[Row], str],
) -> Iterator[Fold]:
    """Every family with its coefficients.

    solution: what `solved` gives for the same rows. by: the family of a row.
    """
    problem, logs, ratios, jacobian = solution
    family = np.array([by(r) for r in problem.rows])
    of_row = np.array([by(r) for r in rows])
    # Where the fit has not come to rest, a step on all rows moves, too: that is not the fold's
    rest = problem.step(logs, ratios, jacobian, np.ones(len(family), dtype=np.bool_))
    for name in sorted(set(of_row)):
        keep = family != name
        without = logs
        if not keep.all():
            moved = problem.step(logs, ratios, jacobian, keep) - rest
            without = np.clip(logs + moved, problem.low, problem.high)
        yield Fold(name, np.flatnonzero(of_row == name), problem.coefficients(without))


def solved(
    rows: Sequence[Row], base: Coefficients, iterations: int
) -> tuple[StepTimes, Floats, Floats, Floats]:
    """The problem, and its logs, log ratios and Jacobian at the optimum.

    base: where to start, the shipped coefficients.
    """
    problem = StepTimes(rows, base, free_parameters(base))
    return problem, *problem.solve(iterations)
