"""Measured peaks, and runs that fitted or died, as a least-squares problem in the logarithms.

A measured peak weighs by its logarithmic error. A run that fitted although it was predicted above
the memory of its GPU, or died although it was predicted below, weighs by how far: minus twice the
log-likelihood of the outcome, were the true need log-normal around the prediction. Each family is
held out by one Gauss-Newton step from the fit to all rows, as the step time's are.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cost_model.calibration.memory import MemoryCoefficients, default_memory_coefficients
from cost_model.memory import memory
from cost_model.plans import Floats, PlanTable
from tests.benchmarks.ask import memory_of
from tests.benchmarks.fitting.memory_figures import FIGURES, Figure, read, with_figures
from tests.benchmarks.rows import Row

ROBUST = 0.05
"""Log error from which a measured peak counts less."""
EDGE = 0.06
"""Log-normal width around the prediction within which an outcome is a matter of chance."""
STEP = 0.05
"""Change of a logarithm by which derivatives are taken."""
TINY = 0.5e9
"""Parameters below which a run's bytes say nothing of allocators: workspaces decide."""
ROOMY = 0.7
"""Share of the GPU's memory below which it says nothing that a run fitted."""
GIB = 2.0**30


Group = tuple[npt.NDArray[np.int64], PlanTable]
"""Places of the rows of one model, cluster and training, and their plans."""


@dataclass(frozen=True)
class Fit:
    """A point: logarithms of the figures, residuals there and their derivatives."""

    logs: Floats
    residuals: Floats
    """[rows]"""
    jacobian: Floats
    """[rows, figures]"""


class PeakMemory:
    """The problem over the rows that measured a peak, or whether they ran."""

    def __init__(self, rows: Sequence[Row], base: MemoryCoefficients):
        self.document = json.loads(base.model_dump_json())
        self.rows = [r for r in rows if r.model.params >= TINY and _says_something(r, base)]
        members: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for i, row in enumerate(self.rows):
            members[row.group].append(i)
        self.groups: list[Group] = [
            (np.array(at), PlanTable.from_plans(self.rows[i].plan for i in at))
            for at in members.values()
        ]
        self.touched = [
            [g for g in self.groups if any(_touches(f, self.rows[i]) for i in g[0])]
            for f in FIGURES
        ]
        counts = Counter(r.source for r in self.rows)
        self.weights = np.array([counts[r.source] ** -0.25 for r in self.rows])
        self.start = np.log([read(self.document, f) for f in FIGURES])
        self.expected = np.log([f.expected for f in FIGURES])
        self.spreads = np.array([f.spread for f in FIGURES])
        self.low = np.log([f.low for f in FIGURES])
        self.high = np.log([f.high for f in FIGURES])

    def coefficients(self, logs: Floats) -> MemoryCoefficients:
        """The coefficients at these logarithms."""
        return with_figures(self.document, FIGURES, [math.exp(v) for v in logs])

    def residuals(self, logs: Floats, groups: Sequence[Group] | None = None) -> Floats:
        """Weighted residuals [rows]: one where a robust error is 5 %, or an outcome unlikely.

        NaN outside the groups asked for.
        """
        known = self.coefficients(logs)
        out = np.full(len(self.rows), np.nan)
        for at, table in self.groups if groups is None else groups:
            first = self.rows[at[0]]
            said = memory(first.model, first.cluster, first.training, table, known)
            limit = first.cluster.node.gpu.memory_gib * GIB
            for place, i in enumerate(at):
                row = self.rows[i]
                if row.measured.memory_bytes is not None:
                    found = memory_of(row, said, place, known)
                    out[i] = _robust(math.log(found / row.measured.memory_bytes) / ROBUST)
                else:
                    z = math.log(limit / float(said.total_bytes[place])) / EDGE
                    out[i] = _unlikely(-z if row.measured.oom else z)
        weighted: Floats = out * self.weights
        return weighted

    def solve(self, iterations: int = 4) -> Fit:
        """The optimum, by damped Gauss-Newton steps."""
        logs = np.clip(self.start, self.low, self.high)
        residuals = self.residuals(logs)
        jacobian, damping = self._jacobian(logs, residuals), 1e-2
        every = np.ones(len(self.rows), dtype=np.bool_)
        for _ in range(iterations):
            moved = self.step(Fit(logs, residuals, jacobian), every, damping)
            trial = self.residuals(moved)
            gain = self._cost(logs, residuals) - self._cost(moved, trial)
            if gain <= 0:
                damping *= 10
                continue
            logs, residuals, damping = moved, trial, damping / 3
            jacobian = self._jacobian(logs, residuals)
            if gain < 1e-3 * self._cost(logs, residuals):
                break
        return Fit(logs, residuals, jacobian)

    def step(self, at: Fit, keep: npt.NDArray[np.bool_], damping: float = 0.0) -> Floats:
        """One damped Gauss-Newton step on the rows kept, within the bounds [figures]."""
        jacobian = at.jacobian[keep]
        normal = jacobian.T @ jacobian + np.diag(1 / self.spreads**2)
        normal += damping * np.diag(np.diag(normal))
        slope = jacobian.T @ at.residuals[keep] + (at.logs - self.expected) / self.spreads**2
        return np.clip(at.logs - np.linalg.solve(normal, slope), self.low, self.high)

    def _cost(self, logs: Floats, residuals: Floats) -> float:
        prior = (((logs - self.expected) / self.spreads) ** 2).sum()
        return float((residuals**2).sum() + prior)

    def _jacobian(self, logs: Floats, residuals: Floats) -> Floats:
        out = np.zeros((len(self.rows), len(FIGURES)))
        for j, groups in enumerate(self.touched):
            moved = logs.copy()
            step = STEP if logs[j] + STEP <= self.high[j] else -STEP
            moved[j] += step
            changed = self.residuals(moved, groups)
            seen = ~np.isnan(changed)
            out[seen, j] = (changed[seen] - residuals[seen]) / step
        return out


def memory_solved(rows: Sequence[Row], iterations: int = 3) -> "tuple[PeakMemory, Fit]":
    """The problem over these rows and its optimum, from the shipped coefficients."""
    problem = PeakMemory(rows, default_memory_coefficients())
    return problem, problem.solve(iterations)


def memory_folds(
    rows: Sequence[Row], solution: tuple[PeakMemory, Fit], by: Callable[[Row], str]
) -> dict[str, MemoryCoefficients]:
    """The coefficients without each family."""
    problem, at = solution
    family = np.array([by(r) for r in problem.rows])
    whole = problem.coefficients(at.logs)
    return {
        name: problem.coefficients(problem.step(at, family != name))
        if (family == name).any()
        else whole
        for name in sorted({by(r) for r in rows})
    }


def _touches(figure: Figure, row: Row) -> bool:
    """Whether a figure can move a row's residual."""
    top, name, *_ = (*figure.places[0], "")
    cached = row.measured.memory_bytes is not None and row.measured.memory_kind != "allocated"
    if top == "stacks":
        return row.training.stack == name
    if top == "software":
        stack = row.training.stack
        return cached and (
            row.plan.software.name.lower() in [p[1] for p in figure.places] or bool(stack)
        )
    return cached or row.measured.memory_bytes is None


def _says_something(row: Row, base: MemoryCoefficients) -> bool:
    """Whether a row can move a figure: no run does that needed half of its GPU."""
    if row.measured.memory_bytes is not None:
        return True
    if row.measured.oom is None:
        return False
    table = PlanTable.from_plans([row.plan])
    need = float(memory(row.model, row.cluster, row.training, table, base).total_bytes[0])
    return bool(row.measured.oom) or need > ROOMY * row.cluster.node.gpu.memory_gib * GIB


def _robust(z: float) -> float:
    """Square root of the soft L1 loss, signed."""
    return math.copysign(math.sqrt(2 * (math.sqrt(1 + z * z) - 1)), z)


def _unlikely(z: float) -> float:
    """Square root of minus twice the log-probability of being below z standard deviations."""
    below = 0.5 * math.erfc(-z / math.sqrt(2))
    if below < 1e-12:
        return math.sqrt(z * z + 2 * math.log(-z * math.sqrt(2 * math.pi)))
    return math.sqrt(-2 * math.log(below))
