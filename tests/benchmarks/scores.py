"""Scores of answers against measurements: errors, confusion, rank correlation, regret, coverage."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_model.plans import Floats
from tests.benchmarks.ask import Answers
from tests.benchmarks.rows import Row, Skipped

REALISTIC = 0.5e9
"""Parameters from which a model is of realistic size: below, workspaces and rounding are most."""
CLOSE = 0.15
"""Relative error of memory that is close."""
MIN_SWEEP = 3
"""Fewest runs of which a ranking says anything."""


@dataclass(frozen=True)
class Pairs:
    """Measured and predicted values of the rows that measured something; [n] each."""

    rows: npt.NDArray[np.int64]
    """Index into the list of rows."""
    measured: Floats
    predicted: Floats
    low: Floats
    high: Floats

    @property
    def errors(self) -> Floats:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1

    def only(self, keep: npt.NDArray[np.bool_]) -> "Pairs":
        """The pairs picked by a mask over all rows."""
        mask = keep[self.rows]
        return Pairs(
            self.rows[mask],
            self.measured[mask],
            self.predicted[mask],
            self.low[mask],
            self.high[mask],
        )


def time_pairs(rows: Sequence[Row], answers: Answers) -> Pairs:
    """Step times in seconds."""
    at = np.array([i for i, r in enumerate(rows) if r.measured.seconds is not None], dtype=np.int64)
    measured = np.array([rows[i].measured.seconds for i in at], dtype=float)
    return Pairs(
        at, measured, answers.seconds[at], answers.seconds_low[at], answers.seconds_high[at]
    )


def memory_pairs(rows: Sequence[Row], answers: Answers) -> Pairs:
    """Peak bytes, each of the kind and rank that its source measured."""
    at = np.array(
        [i for i, r in enumerate(rows) if r.measured.memory_bytes is not None], dtype=np.int64
    )
    measured = np.array([rows[i].measured.memory_bytes for i in at], dtype=float)
    return Pairs(at, measured, answers.memory[at], answers.memory_low[at], answers.memory_high[at])


def error_block(pairs: Pairs) -> dict[str, float | int | None]:
    """Count, mean and median absolute error and bias, as fractions."""
    n = len(pairs.measured)
    if n == 0:
        return {"n": 0, "mape": None, "median_ape": None, "bias": None}
    errors = pairs.errors
    return {
        "n": n,
        "mape": float(np.abs(errors).mean()),
        "median_ape": float(np.median(np.abs(errors))),
        "bias": float(errors.mean()),
    }


def realistic(rows: Sequence[Row]) -> npt.NDArray[np.bool_]:
    """Which rows are of realistic size [rows]."""
    return np.array([row.model.params >= REALISTIC for row in rows], dtype=np.bool_)


def realistic_block(rows: Sequence[Row], pairs: Pairs) -> dict[str, float | int | None]:
    """The errors of the rows whose model has at least half a billion parameters, and the share of
    them that is within 15 %."""
    large = pairs.only(realistic(rows))
    close = float((np.abs(large.errors) <= CLOSE).mean()) if len(large.measured) else None
    return {**error_block(large), "within15": close, "coverage90": coverage(large)}


def coverage(pairs: Pairs) -> float | None:
    """Share of the measured values within the predicted interval."""
    if len(pairs.measured) == 0:
        return None
    inside = (pairs.measured >= pairs.low) & (pairs.measured <= pairs.high)
    return float(inside.mean())


def kendall_tau(a: Floats, b: Floats) -> float:
    """Kendall's tau-b of two rankings (Kendall 1945); 0 where one of them is constant."""
    i, j = np.triu_indices(len(a), 1)
    x, y = np.sign(a[i] - a[j]), np.sign(b[i] - b[j])
    ties = np.sqrt(float(np.count_nonzero(x)) * float(np.count_nonzero(y)))
    return float((x * y).sum() / ties) if ties else 0.0


def sweeps(rows: Sequence[Row], pairs: Pairs) -> list[dict[str, Any]]:
    """Rank correlation and top-choice regret of each set of runs that differ only in the plan.

    Regret: measured time of the predicted-fastest over the best measured, less one.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for place, i in enumerate(pairs.rows):
        members[rows[i].sweep].append(place)
    found = []
    for key, places in sorted(members.items()):
        at = np.array(places)
        plans = {(rows[pairs.rows[p]].plan, rows[pairs.rows[p]].kernel) for p in places}
        if len(plans) < MIN_SWEEP:
            continue
        measured, predicted = pairs.measured[at], pairs.predicted[at]
        chosen = measured[np.argmin(predicted)]
        found.append(
            {
                "key": key,
                "n": len(places),
                "tau": kendall_tau(predicted, measured),
                "regret": float(chosen / measured.min() - 1),
            }
        )
    return found


def confusion(rows: Sequence[Row], answers: Answers, keep: npt.NDArray[np.bool_]) -> dict[str, int]:
    """Counts by measured and predicted outcome: ran or out of memory, fits or not."""
    counts = {"ran_fits": 0, "ran_oom": 0, "oom_fits": 0, "oom_oom": 0}
    for i, row in enumerate(rows):
        if keep[i] and row.measured.oom is not None:
            measured = "oom" if row.measured.oom else "ran"
            counts[f"{measured}_{'fits' if answers.fits[i] else 'oom'}"] += 1
    return counts


def block(
    rows: Sequence[Row],
    skipped: Sequence[Skipped],
    answers: Answers,
    keep: npt.NDArray[np.bool_],
) -> dict[str, Any]:
    """Everything that is reported of the rows of one source, or of all.

    keep: mask over rows. skipped: those of the same source or sources.
    """
    reasons: dict[str, int] = defaultdict(int)
    for row in skipped:
        reasons[row.reason] += 1
    times = time_pairs(rows, answers).only(keep)
    memory = memory_pairs(rows, answers).only(keep)
    used = int(keep.sum())
    return {
        "rows": used + len(skipped),
        "used": used,
        "skipped": dict(sorted(reasons.items())),
        "step_time": error_block(times),
        "memory": error_block(memory),
        "memory_realistic": realistic_block(rows, memory),
        "fit": confusion(rows, answers, keep),
        "sweeps": sweeps(rows, times),
        "coverage90": {"step_time": coverage(times), "memory": coverage(memory)},
    }


def all_blocks(rows: Sequence[Row], skipped: Sequence[Skipped], answers: Answers) -> dict[str, Any]:
    """{"sources": {name: block}, "all": block}."""
    sources = sorted({r.source for r in rows} | {s.source for s in skipped})
    of_row = np.array([r.source for r in rows])
    return {
        "sources": {
            name: block(rows, [s for s in skipped if s.source == name], answers, of_row == name)
            for name in sources
        },
        "all": block(rows, skipped, answers, np.ones(len(rows), dtype=np.bool_)),
    }
