"""Asks the cost model about rows: one call for all plans of a model, cluster and training."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from cost_model.calibration import Coefficients
from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory import detail
from cost_model.plans import Bools, Floats, PlanTable
from cost_model.predict import predict
from cost_model.prediction import MemoryPrediction
from tests.benchmarks.rows import Row, Skipped


@dataclass(frozen=True)
class Answers:
    """What the cost model says of each row; arrays of shape [rows]."""

    seconds: Floats
    seconds_low: Floats
    seconds_high: Floats
    memory: Floats
    """Bytes of the kind and rank that the row measured."""
    memory_low: Floats
    memory_high: Floats
    fits_probability: Floats
    fits: Bools
    parts: dict[str, Floats]
    """Seconds by STEP_PARTS."""
    categories: dict[str, Floats]
    """Bytes by MEMORY_CATEGORIES, of the worst rank."""


def _groups(rows: Sequence[Row]) -> list[npt.NDArray[np.int64]]:
    found: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        found[row.group].append(i)
    return [np.asarray(indices, dtype=np.int64) for indices in found.values()]


def ask(
    rows: Sequence[Row],
    coefficients: Coefficients | None = None,
    memory_coefficients: MemoryCoefficients | None = None,
) -> Answers:
    """The cost model's answers, in the order of the rows; the shipped coefficients by default."""
    n = len(rows)
    columns = {
        f.name: np.zeros(n)
        for f in fields(Answers)
        if f.name not in ("fits", "parts", "categories")
    }
    fits = np.zeros(n, dtype=np.bool_)
    parts: dict[str, Floats] = defaultdict(lambda: np.zeros(n))
    categories: dict[str, Floats] = defaultdict(lambda: np.zeros(n))
    for group in _groups(rows):
        first = rows[group[0]]
        table = PlanTable.from_plans(rows[i].plan for i in group)
        said = predict(
            first.model, first.cluster, first.training, table, coefficients, memory_coefficients
        )
        columns["seconds"][group] = said.step.seconds
        columns["seconds_low"][group] = said.seconds_low
        columns["seconds_high"][group] = said.seconds_high
        columns["fits_probability"][group] = said.fits_probability
        fits[group] = said.fits
        for name, values in said.step.parts.items():
            parts[name][group] = values
        for name, values in said.memory.categories.items():
            categories[name][group] = values
        for place, i in enumerate(group):
            total = said.memory.total_bytes[place]
            found = memory_of(rows[i], said.memory, place, memory_coefficients)
            columns["memory"][i] = found
            columns["memory_low"][i] = found * said.total_bytes_low[place] / total
            columns["memory_high"][i] = found * said.total_bytes_high[place] / total
    return Answers(**columns, fits=fits, parts=dict(parts), categories=dict(categories))


FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What a row of a kind never seen before may raise; it must not stop the others."""


def ask_what_can_be(rows: Sequence[Row]) -> tuple[list[Row], list[Skipped], Answers]:
    """(rows that have an answer, those that have none and why, the answers)."""
    refused: dict[int, str] = {}
    try:
        answers = ask(rows)
    except FAILURES:
        for group in _groups(rows):
            try:
                ask([rows[i] for i in group])
            except FAILURES as error:
                refused |= {int(i): f"no prediction: {error!s:.80}" for i in group}
        answers = ask([row for i, row in enumerate(rows) if i not in refused])
    asked = [i for i in range(len(rows)) if i not in refused]
    sound = np.isfinite(answers.seconds) & np.isfinite(answers.memory)
    refused |= {
        i: "prediction is not finite" for i, fine in zip(asked, sound, strict=True) if not fine
    }
    if not sound.all():
        answers = ask([row for i, row in enumerate(rows) if i not in refused])
    skipped = [Skipped(rows[i].source, rows[i].row_id, why) for i, why in refused.items()]
    return [row for i, row in enumerate(rows) if i not in refused], skipped, answers


def memory_of(
    row: Row, said: MemoryPrediction, place: int, coefficients: MemoryCoefficients | None = None
) -> float:
    """Predicted bytes of the kind and rank that a row measured; it is at `place` in its table."""
    of_kind = {
        "allocated": said.allocated_bytes,
        "reserved": said.reserved_bytes,
        "driver": said.reserved_bytes + said.categories["framework"],
    }[row.measured.memory_kind]
    worst = float(of_kind[place])
    if row.measured.memory_bytes is None or row.measured.memory_rank == "worst":
        return worst
    outside = float(said.categories["framework"][place])
    return _rank_bytes(row, worst, outside, coefficients)


def _rank_bytes(
    row: Row, worst: float, outside: float, coefficients: MemoryCoefficients | None
) -> float:
    """Bytes of the first or last pipeline stage, for sources that print only those.

    outside: what the driver reports beyond the allocator.
    """
    if row.plan.pp == 1:
        return worst
    stages = detail(row.model, row.cluster, row.training, row.plan, coefficients)
    of_kind = stages.allocated if row.measured.memory_kind == "allocated" else stages.reserved
    found = of_kind[0 if row.measured.memory_rank == "first" else -1]
    return found + outside if row.measured.memory_kind == "driver" else found
