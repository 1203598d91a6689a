"""Solves what is not enumerated: fine knobs, and how many layers to recompute."""

from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from cost_model.calibration.memory import default_memory_coefficients
from cost_model.plans import Bools, Floats, Ints, PlanTable
from planner.candidate import GIB
from planner.objectives import Scores, acceptable, keys, meets_deadline
from planner.request.request import Resolved
from planner.rows import join, take
from planner.scoring import held, missing_bytes, sure, timed
from planner.space.fine import RATIOS, RUNGS, TIGHT, FineKnobs
from planner.space.solve import first_fitting, layers_per_stage, recomputing, solvable

WORTH = 1e-3
"""Share of a step that a setting must save to be taken instead of a roomier one."""

Columns = TypeVar("Columns", PlanTable, Scores)

FEW = 1_000
"""Plans up to which a second call costs more than asking for every rung at once."""


@dataclass(frozen=True)
class Fitting:
    """Plans that fit at some setting of their fine knobs, at the first one found."""

    table: PlanTable
    scores: Scores
    least: Floats
    """Seconds that no setting beats [plans]."""
    roomy: Bools
    """Whether that setting is DeepSpeed's own: the first rung and the whole optimizer offloaded."""


def fitting(resolved: Resolved, table: PlanTable) -> Fitting:
    """The plans that fit: with DeepSpeed's own buckets, else with the smallest, else also with a
    part of the optimizer on the GPU where the host has no room for all of it."""
    world, search = resolved.world, resolved.search
    fine = FineKnobs(search, resolved.training.optimizer)
    narrow, owner = fine.narrower(table.take(slice(0, len(table) if len(table) <= FEW else 0)))
    scores = held(world, join([table, narrow]))
    more = take(scores, slice(len(table), None))
    scores = take(scores, slice(0, len(table)))
    roomy = acceptable(world, search, scores)
    if len(table) > FEW:
        behind = np.flatnonzero(~roomy)
        narrow, owner = fine.narrower(table.take(behind))
        owner, more = behind[owner], held(world, narrow)
    waiting = np.flatnonzero(~roomy[owner])
    rescued, more = _rescued(resolved, narrow.take(waiting), take(more, waiting), owner[waiting])
    rows = np.flatnonzero(roomy)
    kept, known = join([table.take(rows), rescued]), join([take(scores, rows), more])
    known, least = timed(world, kept, known)
    return Fitting(kept, known, least, np.arange(len(kept)) < len(rows))


def _rescued(
    resolved: Resolved, table: PlanTable, scores: Scores, owner: Ints
) -> tuple[PlanTable, Scores]:
    """Of plans at narrower rungs the first of each that fits, whole or with some of the optimizer
    kept on the GPU. owner: whose each is, in rising order."""
    world, search = resolved.world, resolved.search
    fine = FineKnobs(search, resolved.training.optimizer)
    fits = acceptable(world, search, scores)
    rows = np.flatnonzero(fits)
    rows = rows[np.unique(owner[rows], return_index=True)[1]]
    kept, known = table.take(rows), take(scores, rows)
    # less on the host is more on the GPU, so the GPU must have room now
    room = missing_bytes(world, replace(scores, host_bytes=np.zeros(len(table)))) == 0
    rest = table.take(np.flatnonzero(~fits & fine.has_ratio(table) & room))
    if not len(rest):
        return kept, known
    every, number = _variants(rest, len(RATIOS))
    every = fine.with_ratio(every, np.array(RATIOS).take(number))
    scores = held(world, every)
    fits = acceptable(world, search, scores).reshape(len(rest), len(RATIOS))
    rows = np.flatnonzero(fits.any(axis=1))
    rows = rows * len(RATIOS) + fits[rows].argmax(axis=1)
    return join([kept, every.take(rows)]), join([known, take(scores, rows)])


def tuned(resolved: Resolved, found: Fitting) -> tuple[PlanTable, Scores]:
    """Each plan with the best setting of its fine knobs, and its scores.

    At ZeRO 1 and 2 a bucket changes time and memory: every rung is tried. At ZeRO 3 buckets change
    memory alone: the share offloaded is settled at the tightest rung, and then the roomiest rung
    that fits is taken.
    """
    fine = FineKnobs(resolved.search, resolved.training.optimizer)
    table = found.table
    three = table.zero_stage == 3
    partly = np.flatnonzero(fine.has_ratio(table))
    rungs = np.flatnonzero(fine.has_rungs(table) & ~three)
    settled, scores = table, found.scores
    if len(partly) + len(rungs):
        shares, number = _variants(table.take(partly), len(RATIOS))
        shares = fine.at_rung(fine.with_ratio(shares, np.array(RATIOS).take(number)), TIGHT)
        buckets, number = _variants(table.take(rungs), RUNGS)
        every = join([shares, fine.at_rung(buckets, number)])
        every_scores, seconds = _seconds(resolved, every)
        best = np.concatenate(
            [
                _fastest(len(partly), seconds[: len(shares)]),
                len(shares) + _fastest(len(rungs), seconds[len(shares) :]),
            ]
        )
        rows = np.concatenate([partly, rungs])
        settled = _put(table, rows, every.take(best))
        scores = _put(scores, rows, take(every_scores, best))
    narrow = three & fine.has_rungs(table)
    narrow &= ~found.roomy | (settled.offload_ratio != table.offload_ratio)
    # settled at the tightest rung, and known to fit at the first
    first = np.flatnonzero(three & found.roomy & ~narrow & fine.has_ratio(table))
    settled = _put(settled, first, table.take(first))
    scores = _put(scores, first, take(found.scores, first))
    rows = np.flatnonzero(narrow)
    wide, known = _widened(resolved, settled.take(rows), take(scores, rows))
    return _put(settled, rows, wide), _put(scores, rows, known)


def _widened(resolved: Resolved, table: PlanTable, scores: Scores) -> tuple[PlanTable, Scores]:
    """Plans of known step time; those of ZeRO 3, which fit at the tightest rung, at the roomiest
    one that fits; and their scores."""
    if not len(table):
        return table, scores
    world, fine = resolved.world, FineKnobs(resolved.search, resolved.training.optimizer)
    counts = np.where((table.zero_stage == 3) & fine.has_rungs(table), RUNGS, 1)
    owner = np.repeat(np.arange(len(table)), counts)
    number = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    every = table.take(owner)
    at = np.where(counts[owner] > 1, number, 0)
    moved = fine.at_rung(every, at)
    every = _put(every, np.flatnonzero(counts[owner] > 1), moved.take(counts[owner] > 1))
    sizes = held(world, every)
    fits = acceptable(world, resolved.search, sizes)
    best = _fastest_of(owner, number, np.where(fits | (number == counts[owner] - 1), 0.0, np.inf))
    known = replace(take(sizes, best), seconds=scores.seconds)
    return every.take(best), known


def recomputed(
    resolved: Resolved, table: PlanTable, worst_key: float | None
) -> tuple[PlanTable, Scores]:
    """Plans of `table` that must recompute, with the fewest layers and the best fine knobs.

    worst_key: the first sort key of the last plan kept so far; plans that would not beat it even
    without any recompute are left out. None leaves none out. A plan that fits without recompute,
    or only with all layers, at some setting of the fine knobs gives no row: it is ranked already.
    """
    world, search = resolved.world, resolved.search
    if {"recompute_layers"} & (set(search.fixed) | set(search.limits)):
        table = table.take(slice(0, 0))
    table = solvable(world, table)
    if worst_key is not None and len(table) > FEW:
        plain = recomputing(table, np.zeros(len(table), np.int64))
        scores, least = timed(world, plain, sure(len(table)))
        table = table.take(np.flatnonzero(hopeful(resolved, table, scores, least, worst_key)))
    if not len(table):
        return table, sure(0)
    every, owner, number = _settings(resolved, table)
    layers = _fewest(resolved, every)
    needless = np.zeros(len(table), np.bool_)
    needless[owner[layers == 0]] = True
    some = (layers > 0) & (layers < layers_per_stage(world, every)) & ~needless[owner]
    rows = np.flatnonzero(some)
    chosen = recomputing(every.take(rows), layers[rows])
    scores, _ = timed(world, chosen, sure(len(rows)))
    best = _fastest_of(owner[rows], number[rows], scores.seconds)
    chosen, scores = chosen.take(best), take(scores, best)
    if worst_key is not None:
        best = np.flatnonzero(keys(search, chosen, scores)[0] <= worst_key)
        chosen, scores = chosen.take(best), take(scores, best)
    return punctual(resolved, *_widened(resolved, chosen, scores))


def _fewest(resolved: Resolved, table: PlanTable) -> Ints:
    """The fewest layers to recompute with which each plan fits [plans]."""
    world, search = resolved.world, resolved.search

    def judge(plans: PlanTable) -> tuple[Bools, Floats]:
        scores = held(world, plans)
        return acceptable(world, search, scores), scores.total_bytes

    return first_fitting(world, table, judge, _most_bytes(resolved))


def _most_bytes(resolved: Resolved) -> float:
    """Total bytes up to which a GPU holds a plan as surely as the request demands."""
    search, gpu = resolved.search, resolved.cluster.node.gpu.memory_gib * GIB
    known = resolved.memory_coefficients or default_memory_coefficients()
    chance = min(max(search.min_fits_probability, 1e-6), 1 - 1e-6)
    likely = gpu * np.exp(-known.spread.sigma * NormalDist().inv_cdf(chance))
    return float(min(likely, gpu - search.headroom_gib * GIB))


def hopeful(
    resolved: Resolved, table: PlanTable, scores: Scores, least: Floats, worst_key: float | None
) -> Bools:
    """Whether each plan may still enter the ranking at the least seconds it can take [plans]."""
    if worst_key is None:
        return np.ones(len(table), np.bool_)
    hoped = replace(scores, seconds=least)
    return np.asarray(keys(resolved.search, table, hoped)[0] <= worst_key)


def punctual(resolved: Resolved, table: PlanTable, scores: Scores) -> tuple[PlanTable, Scores]:
    """The plans that meet the deadline."""
    if resolved.search.deadline_days is None:
        return table, scores
    rows = np.flatnonzero(meets_deadline(resolved.world, resolved.search, scores))
    return take(table, rows), take(scores, rows)


def _put(columns: Columns, rows: Ints, values: Columns) -> Columns:
    """The columns with the given rows replaced; only what differs is copied."""
    if not len(rows):
        return columns
    changed = {}
    for name in (f.name for f in fields(columns)):
        column, new = getattr(columns, name), getattr(values, name)
        if not np.array_equal(column[rows], new):
            changed[name] = column.copy()
            changed[name][rows] = new
    return replace(columns, **changed)


def _variants(table: PlanTable, count: int) -> tuple[PlanTable, Ints]:
    """Every plan `count` times, one after the other, and the number of each copy."""
    rows = np.repeat(np.arange(len(table)), count)
    return table.take(rows), np.tile(np.arange(count), len(table))


def _seconds(resolved: Resolved, table: PlanTable) -> tuple[Scores, Floats]:
    """Scores of every row, and its step time where it fits, else infinite."""
    world = resolved.world
    scores = held(world, table)
    fits = acceptable(world, resolved.search, scores)
    scores, _ = timed(world, table, scores)
    return scores, np.where(fits, scores.seconds, np.inf)


def _fastest(plans: int, seconds: Floats) -> Ints:
    """Of each plan's variants the first that no other beats by more than it is worth [plans].

    seconds: [plans x variants], one plan after the other.
    """
    if not plans:
        return np.zeros(0, np.int64)
    each = seconds.reshape(plans, -1)
    close = each <= each.min(axis=1, keepdims=True) * (1 + WORTH)
    picked: Ints = np.arange(plans) * each.shape[1] + close.argmax(axis=1)
    return picked


def _fastest_of(owner: Ints, number: Ints, seconds: Floats) -> Ints:
    """The same for plans with unequal numbers of variants: rows of the variants picked."""
    if not len(owner):
        return owner
    best = np.full(int(owner.max()) + 1, np.inf)
    np.minimum.at(best, owner, seconds)
    close = np.flatnonzero(seconds <= best[owner] * (1 + WORTH))
    order = close[np.lexsort((number[close], owner[close]))]
    _, first = np.unique(owner[order], return_index=True)
    picked: Ints = order[first]
    return picked


def _settings(resolved: Resolved, table: PlanTable) -> tuple[PlanTable, Ints, Ints]:
    """Settings of the fine knobs among which the number of recomputed layers is solved.

    Every rung for ZeRO 1 and 2, where buckets change the time too; the tightest one for ZeRO 3,
    with every ratio where the optimizer is offloaded. Returns the variants, whose they are, and
    their number.
    """
    fine = FineKnobs(resolved.search, resolved.training.optimizer)
    rungs, partly = fine.has_rungs(table), fine.has_ratio(table)
    three = table.zero_stage == 3
    counts = np.where(partly, len(RATIOS), np.where(rungs & ~three, RUNGS, 1))
    owner = np.repeat(np.arange(len(table)), counts)
    starts = np.cumsum(counts) - counts
    number = np.arange(len(owner)) - starts[owner]
    every = table.take(owner)
    ratio = np.array(RATIOS).take(np.where(partly[owner], number, 0))
    every = fine.with_ratio(every, ratio)
    return fine.at_rung(every, np.where(three[owner], TIGHT, number)), owner, number
