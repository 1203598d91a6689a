"""Exact ranking: the memory of every legal plan, the step time of those that fit, the best kept."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cost_model.plans import BLOCK, Floats, PlanTable, Software
from planner.bound import frugal_bound
from planner.candidate import GIB
from planner.fitting import Fitting, fitting
from planner.objectives import (
    Scores,
    best_first,
    keys,
    meets_deadline,
    pareto_front,
    pareto_points,
)
from planner.request.request import Resolved
from planner.rows import join, take
from planner.scoring import (
    blocks,
    evaluate,
    held,
    in_blocks,
    missing_bytes,
    scores_of,
    sure,
)
from planner.space import enumerate_plans
from planner.space.fine import TIGHT, FineKnobs
from planner.space.solve import solvable
from planner.tuning import hopeful, punctual, recomputed, tuned

__all__ = ["Ranked", "evaluate", "fitting_plans", "missing_bytes", "nearest", "rank", "scores_of"]

Progress = Callable[[int, int], None]
"""Called with plans evaluated and legal plans known so far."""

Observer = Callable[[PlanTable, Scores], None]
"""Sees every block of plans that fit with DeepSpeed's own buckets."""


@dataclass(frozen=True)
class Ranked:
    """The best plans in rank order, with the counts of the pass."""

    table: PlanTable
    enumerated: int
    bounded: int
    legal: int
    fitting: int
    solved: int
    tuned: int
    by_software: dict[str, int]


class _Best:
    """The best rows so far."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.parts: list[tuple[PlanTable, Scores]] = []
        self.size = 0

    def add(self, table: PlanTable, scores: Scores) -> None:
        if not len(table):
            return
        self.parts.append((table, scores))
        self.size += len(table)
        if self.size > 2 * max(BLOCK, self.resolved.search.keep):
            self.settle()

    def settle(self) -> PlanTable:
        """All rows so far in rank order, down to the last that is kept."""
        if not self.parts:
            return PlanTable.from_columns(0)
        table = join([t for t, _ in self.parts])
        scores = join([s for _, s in self.parts])
        search = self.resolved.search
        if search.objective == "pareto":
            front = pareto_front(pareto_points(table, scores))
            table, scores = take(table, front), take(scores, front)
        rows = best_first(keys(search, table, scores))
        if search.objective != "pareto":
            rows = rows[: search.keep]
        table, scores = take(table, rows), take(scores, rows)
        self.parts, self.size = [(table, scores)], len(table)
        return table


class _Worst:
    """First sort key that the last plan of the final ranking cannot exceed."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.known = np.zeros(0)

    def add(self, table: PlanTable, scores: Scores) -> None:
        """Takes note of plans that are sure to be ranked, at these scores or better."""
        search = self.resolved.search
        on_time = meets_deadline(self.resolved.world, search, scores)
        first = np.asarray(keys(search, table, scores)[0], np.float64)[on_time]
        every = np.concatenate([self.known, first])
        if len(every) > search.keep:
            every = np.partition(every, search.keep - 1)[: search.keep]
        self.known = every

    @property
    def key(self) -> float | None:
        """None while any plan may still enter."""
        search = self.resolved.search
        if search.objective == "pareto" or len(self.known) < search.keep:
            return None
        return float(self.known.max())


def _in_the_running(resolved: Resolved, parts: list[Fitting], worst: float | None) -> Fitting:
    """The plans that may still enter the ranking, in the order they were found."""
    kept = [
        take(p, np.flatnonzero(hopeful(resolved, p.table, p.scores, p.least, worst))) for p in parts
    ]
    return join(kept)


def rank(
    resolved: Resolved, progress: Progress | None = None, observe: Observer | None = None
) -> Ranked:
    """Predicts every legal plan and ranks those that fit; the table is empty where none does."""
    best, worst = _Best(resolved), _Worst(resolved)
    enumerated = bounded = legal = seen = fit = solved = 0
    by_software: dict[str, int] = {}
    running: list[Fitting] = []
    unsolved: list[PlanTable] = []

    def tables() -> Iterator[PlanTable]:
        nonlocal enumerated, bounded, legal
        for block in enumerate_plans(resolved.world, resolved.search, frugal_bound(resolved)):
            enumerated += block.combinations
            bounded += block.bounded
            legal += len(block.table)
            if len(block.table):
                name = Software(int(block.table.software[0])).name.lower()
                by_software[name] = len(block.table)
                yield block.table

    for part in in_blocks(tables()):
        found = fitting(resolved, part)
        fit += len(found.table)
        worst.add(found.table, found.scores)
        running.append(found)
        unsolved.append(solvable(resolved.world, found.table))
        if len(running) > 8:
            running = [_in_the_running(resolved, running, worst.key)]
        if observe is not None and found.roomy.any():
            observe(found.table.take(found.roomy), take(found.scores, found.roomy))
        seen += len(part)
        if progress is not None:
            progress(seen, legal)
    settled = 0
    if running:
        hoped = _in_the_running(resolved, running, worst.key)
        settled = int(
            FineKnobs(resolved.search, resolved.training.optimizer).has_rungs(hoped.table).sum()
        )
        for start in range(0, len(hoped.table), BLOCK):
            some = take(hoped, slice(start, start + BLOCK))
            best.add(*punctual(resolved, *tuned(resolved, some)))
        worst = _Worst(resolved)
        for table, scores in best.parts:
            worst.add(table, scores)
    for part in in_blocks(unsolved):
        table, scores = recomputed(resolved, part, worst.key)
        solved += len(table)
        best.add(table, scores)
    return Ranked(best.settle(), enumerated, bounded, legal, fit, solved, settled, by_software)


def fitting_plans(resolved: Resolved) -> Iterator[tuple[PlanTable, Scores]]:
    """All plans that fit, solved ones included, block by block, with their scores."""
    found = enumerate_plans(resolved.world, resolved.search, frugal_bound(resolved))
    for part in in_blocks(block.table for block in found):
        kept = fitting(resolved, part)
        if len(kept.table):
            yield punctual(resolved, *tuned(resolved, kept))
            yield recomputed(resolved, kept.table, None)


def nearest(resolved: Resolved, count: int) -> tuple[PlanTable, Floats]:
    """The legal plans that miss by the fewest bytes, nearest first, and the bytes they miss.

    Memory rises with the micro-batch and the buckets, so only the smallest are looked at.
    """
    world, search = resolved.world, resolved.search
    headroom = search.headroom_gib * GIB
    limit = search.limits.get("micro_batch")
    if "micro_batch" not in search.fixed and limit is None:
        search = search.model_copy(update={"fixed": search.fixed | {"micro_batch": 1}})
    fine = FineKnobs(search, resolved.training.optimizer)

    def first(table: PlanTable, scores: Scores) -> tuple[PlanTable, Scores]:
        missing = missing_bytes(world, scores, headroom)
        order = (missing, scores.total_bytes, *keys(search, table, scores))
        rows = best_first(order)[:count]
        return table.take(rows), take(scores, rows)

    found = [(PlanTable.from_columns(0), sure(0))]
    for block in enumerate_plans(world, search):
        for part in blocks(fine.at_rung(block.table, TIGHT)):
            found.append(first(part, held(world, part)))
    table, scores = first(join([t for t, _ in found]), join([s for _, s in found]))
    return table, missing_bytes(world, scores, headroom)
