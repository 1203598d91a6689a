"""Exact ranking: the memory of every legal plan, the step time of those that fit, the best kept."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from cost_model.memory import fits_probability, memory
from cost_model.plans import Bools, Floats, Ints, PlanTable, Recompute, Software
from cost_model.predict import predict
from cost_model.prediction import Prediction
from cost_model.step import step_time
from planner.candidate import GIB
from planner.objectives import (
    Scores,
    acceptable,
    best_first,
    keys,
    meets_deadline,
    pareto_front,
    pareto_points,
)
from planner.request.request import Resolved
from planner.rows import join, take
from planner.rules import World
from planner.space import Bound, enumerate_plans
from planner.space.solve import fewest_recomputed, layers_per_stage, solvable, without_recompute

BLOCK = 16_384
"""Plans predicted at once: large enough to amortise NumPy's calls, small enough for the cache."""

Progress = Callable[[int, int], None]
"""Called with plans evaluated and legal plans known so far."""


@dataclass(frozen=True)
class Ranked:
    """The best plans in rank order, with the counts of the pass."""

    table: PlanTable
    enumerated: int
    bounded: int
    legal: int
    fitting: int
    solved: int
    by_software: dict[str, int]


def blocks(table: PlanTable) -> Iterator[PlanTable]:
    """The table in slices of BLOCK rows."""
    for start in range(0, len(table), BLOCK):
        yield table.take(slice(start, start + BLOCK))


def evaluate(world: World, table: PlanTable) -> Prediction:
    """Memory and time of every plan of a table."""
    return predict(
        world.model,
        world.cluster,
        world.training,
        table,
        world.coefficients,
        world.memory_coefficients,
    )


def _held(world: World, table: PlanTable) -> Scores:
    """Memory alone; the step time is unknown (0)."""
    if not len(table):
        return _sure(0)
    known = world.memory_coefficients
    held = memory(world.model, world.cluster, world.training, table, known)
    chance = fits_probability(held, world.cluster, known)
    unknown = np.zeros(len(table))
    return Scores(unknown, held.total_bytes, held.host_bytes, chance)


def _timed(world: World, table: PlanTable, scores: Scores) -> Scores:
    """The same with step times."""
    if not len(table):
        return scores
    step = step_time(world.model, world.cluster, world.training, table, world.coefficients)
    return Scores(step.seconds, scores.total_bytes, scores.host_bytes, scores.fits_probability)


def scores_of(prediction: Prediction) -> Scores:
    """What ranks plans, from their full prediction."""
    held = prediction.memory
    return Scores(
        prediction.step.seconds,
        held.total_bytes,
        held.host_bytes,
        prediction.fits_probability,
    )


def frugal_variants(world: World, table: PlanTable) -> Iterator[tuple[PlanTable, Bools]]:
    """The same layouts with everything that saves activation memory switched on, and where it may.

    One sequence per micro-batch, full recompute, partitioned checkpoints in host RAM, chunked
    loss: no refinement of a row holds less GPU memory, with two exceptions that come second and
    third. Checkpoints in host RAM may be what the host has no room for, and a stage of a single
    layer holds its input beside what it recomputes.
    """
    n = len(table)
    partitioned = (table.tp > 1) & (table.software == int(Software.MEGATRON_DEEPSPEED))
    off = np.zeros(n, np.bool_)
    least = replace(
        table,
        micro_batch=np.ones(n, np.int64),
        grad_accum=np.maximum(1, world.training.global_batch // table.dp),
        recompute=np.full(n, int(Recompute.FULL)),
        partition_activations=partitioned,
        cpu_checkpointing=partitioned,
        chunked_loss=np.ones(n, np.bool_),
    )
    yield least, np.ones(n, np.bool_)
    yield replace(least, cpu_checkpointing=off), partitioned
    plain = np.full(n, int(Recompute.NONE))
    kept = replace(least, cpu_checkpointing=off, partition_activations=off, recompute=plain)
    yield kept, layers_per_stage(world, table) == 1


def frugal_bound(resolved: Resolved) -> Bound:
    """Refuses layouts of which not even the most frugal refinement fits."""

    def possible(table: PlanTable) -> Bools:
        fits = np.zeros(len(table), np.bool_)
        for variant, where in frugal_variants(resolved.world, table):
            open_rows = np.flatnonzero(~fits & where)
            for start in range(0, len(open_rows), BLOCK):
                rows = open_rows[start : start + BLOCK]
                fits[rows] = _acceptable(resolved, take(variant, rows))
        return fits

    return possible


class _Best:
    """The best rows so far."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.parts: list[tuple[PlanTable, Scores]] = []
        self.held = 0

    def add(self, table: PlanTable, scores: Scores) -> None:
        if not len(table):
            return
        self.parts.append((table, scores))
        self.held += len(table)
        if self.held > 2 * max(BLOCK, self.resolved.search.keep):
            self.settle()

    def worst_key(self) -> float | None:
        """First sort key of the last plan kept; None while any plan may still enter."""
        search = self.resolved.search
        if search.objective == "pareto" or self.held < search.keep:
            return None
        self.settle()
        table, scores = self.parts[0]
        return float(keys(search, table, scores)[0][-1])

    def settle(self) -> PlanTable:
        if not self.parts:
            return PlanTable.from_columns(0)
        table = join([t for t, _ in self.parts])
        scores = join([s for _, s in self.parts])
        search = self.resolved.search
        if search.objective == "pareto":
            front = pareto_front(pareto_points(table, scores))
            table, scores = take(table, front), take(scores, front)
        rows = best_first(keys(search, table, scores))[: search.keep]
        if search.objective == "pareto":
            rows = best_first(keys(search, table, scores))
        table, scores = take(table, rows), take(scores, rows)
        self.parts, self.held = [(table, scores)], len(table)
        return table


def _acceptable(resolved: Resolved, table: PlanTable) -> Bools:
    return acceptable(resolved.world, resolved.search, _held(resolved.world, table))


def _kept(resolved: Resolved, table: PlanTable) -> tuple[PlanTable, Scores]:
    """The plans that fit and meet the deadline, with their step times."""
    world, search = resolved.world, resolved.search
    scores = _held(world, table)
    rows = np.flatnonzero(acceptable(world, search, scores))
    table = take(table, rows)
    scores = _timed(world, table, take(scores, rows))
    punctual = np.flatnonzero(meets_deadline(world, search, scores))
    return take(table, punctual), take(scores, punctual)


def _solved(
    resolved: Resolved, table: PlanTable, worst_key: float | None
) -> tuple[PlanTable, Scores]:
    """Plans of `table` with the fewest recomputed layers that fit.

    worst_key: the first sort key of the last plan kept so far; plans that would not beat it even
    without any recompute are not solved. None solves all.
    """
    world, search = resolved.world, resolved.search
    if {"recompute_layers"} & (set(search.fixed) | set(search.limits)):
        table = table.take(slice(0, 0))
    table = solvable(world, table)
    if worst_key is not None and len(table):
        plain = without_recompute(table)
        hopeful = _timed(world, plain, _sure(len(table)))
        table = table.take(np.flatnonzero(keys(search, table, hopeful)[0] <= worst_key))
    return _kept(
        resolved, fewest_recomputed(world, table, lambda plans: _acceptable(resolved, plans))
    )


def _sure(n: int) -> Scores:
    """Scores of plans that would fit for certain; times unknown."""
    return Scores(np.zeros(n), np.zeros(n), np.zeros(n), np.ones(n))


def in_blocks(tables: Iterable[PlanTable]) -> Iterator[PlanTable]:
    """Tables cut and joined to BLOCK rows: many small ones cost as many calls as one large."""
    waiting: list[PlanTable] = []
    held = 0
    for table in tables:
        for part in blocks(table):
            if held + len(part) > BLOCK:
                yield join(waiting)
                waiting, held = [], 0
            waiting.append(part)
            held += len(part)
    if held:
        yield join(waiting)


def fitting_plans(resolved: Resolved) -> Iterator[tuple[PlanTable, Scores]]:
    """All plans that fit, solved ones included, block by block, with their scores."""
    found = enumerate_plans(resolved.world, resolved.search, frugal_bound(resolved))
    for part in in_blocks(block.table for block in found):
        kept, scores = _kept(resolved, part)
        yield kept, scores
        yield _solved(resolved, kept, None)


Observer = Callable[[PlanTable, Scores], None]
"""Sees every block of plans that fit."""


def rank(
    resolved: Resolved, progress: Progress | None = None, observe: Observer | None = None
) -> Ranked:
    """Predicts every legal plan and ranks those that fit; the table is empty where none does."""
    best = _Best(resolved)
    enumerated = bounded = legal = seen = fitting = solved = 0
    by_software: dict[str, int] = {}
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
        kept, scores = _kept(resolved, part)
        fitting += len(kept)
        best.add(kept, scores)
        unsolved.append(solvable(resolved.world, kept))
        if observe is not None and len(kept):
            observe(kept, scores)
        seen += len(part)
        if progress is not None:
            progress(seen, legal)
    for part in in_blocks(unsolved):
        kept, scores = _solved(resolved, part, best.worst_key())
        solved += len(kept)
        best.add(kept, scores)
    return Ranked(best.settle(), enumerated, bounded, legal, fitting, solved, by_software)


def missing_bytes(world: World, scores: Scores, headroom: float = 0.0) -> Floats:
    """Bytes that a plan misses on the worst rank and on its host; 0 where both suffice [plans].

    headroom: bytes that must stay free on the GPU.
    """
    gpu = scores.total_bytes - world.cluster.node.gpu.memory_gib * GIB + headroom
    host = scores.host_bytes - world.cluster.node.host_ram_gib * GIB
    missing: Floats = np.maximum(gpu, 0.0) + np.maximum(host, 0.0)
    return missing


def nearest(resolved: Resolved, count: int) -> tuple[PlanTable, Floats]:
    """The legal plans that miss by the fewest bytes, nearest first, and the bytes they miss.

    Memory rises with the micro-batch, so only the smallest allowed one is looked at.
    """
    world, search = resolved.world, resolved.search
    headroom = search.headroom_gib * GIB
    limit = search.limits.get("micro_batch")
    if "micro_batch" not in search.fixed and limit is None:
        search = search.model_copy(update={"fixed": search.fixed | {"micro_batch": 1}})

    def closest(table: PlanTable, scores: Scores) -> Ints:
        missing = missing_bytes(world, scores, headroom)
        return best_first((missing, scores.total_bytes, *keys(search, table, scores)))[:count]

    found: list[tuple[PlanTable, Scores]] = []
    for block in enumerate_plans(world, search):
        for part in blocks(block.table):
            scores = _held(world, part)
            rows = best_first(
                (
                    missing_bytes(world, scores, headroom),
                    scores.total_bytes,
                    *keys(search, part, scores),
                )
            )
            found.append((take(part, rows[:count]), take(scores, rows[:count])))
    table = join([t for t, _ in found])
    scores = join([s for _, s in found])
    rows = best_first(
        (missing_bytes(world, scores, headroom), scores.total_bytes, *keys(search, table, scores))
    )[:count]
    return take(table, rows), missing_bytes(world, take(scores, rows), headroom)
