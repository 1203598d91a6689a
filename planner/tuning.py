"""Solves what is not enumerated: fine knobs, and how many layers to recompute."""

from dataclasses import replace

import numpy as np

from cost_model.plans import Bools, Floats, Ints, PlanTable
from planner.objectives import Scores, acceptable, keys, meets_deadline
from planner.request.request import Resolved
from planner.rows import join, take
from planner.scoring import accepted, held, missing_bytes, sure, timed
from planner.space.fine import RATIOS, RUNGS, TIGHT, FineKnobs
from planner.space.solve import first_fitting, layers_per_stage, recomputing, solvable

WORTH = 1e-3
"""Share of a step that a setting must save to be taken instead of a roomier one."""


def rescue(resolved: Resolved, table: PlanTable) -> tuple[PlanTable, Scores]:
    """Of plans that do not fit as they are, those that do with the smallest buckets, or with less
    of the optimizer on a host that has no room for all of it; without step times."""
    world, search = resolved.world, resolved.search
    fine = FineKnobs(search)
    table = table.take(np.flatnonzero(fine.has_rungs(table) | fine.has_ratio(table)))
    if not len(table):
        return table, sure(0)
    table = fine.at_rung(table, TIGHT)
    scores = held(world, table)
    fits = acceptable(world, search, scores)
    rows = np.flatnonzero(fits)
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
    rows = np.flatnonzero(fits.any(axis=1)) * len(RATIOS)
    rows = rows + fits.argmax(axis=1)[rows // len(RATIOS)]
    return join([kept, every.take(rows)]), join([known, take(scores, rows)])


def tuned(resolved: Resolved, table: PlanTable) -> tuple[PlanTable, Scores]:
    """Each plan with the best setting of its fine knobs, and its scores.

    The rows fit at the tightest rung with some of the optimizer offloaded. The share offloaded is
    settled first, at that rung: at ZeRO 3, the only stage that has it, buckets change memory alone.
    """
    if not len(table):
        return table, sure(0)
    fine = FineKnobs(resolved.search)
    partly = np.flatnonzero(fine.has_ratio(table))
    if len(partly):
        every, _ = _variants(table.take(partly), len(RATIOS))
        shares = np.tile(RATIOS, len(partly))
        every = fine.at_rung(fine.with_ratio(every, shares), TIGHT)
        ratio = table.offload_ratio.copy()
        ratio[partly] = shares[_fastest(len(partly), _seconds(resolved, every)[1])]
        table = replace(table, offload_ratio=ratio)
    every, rung = _variants(table, RUNGS)
    every = fine.at_rung(every, rung)
    distinct = np.flatnonzero((rung == 0) | fine.has_rungs(every))
    few, few_seconds = _seconds(resolved, every.take(distinct))
    seconds = np.full(len(every), np.inf)
    seconds[distinct] = few_seconds
    best = _fastest(len(table), seconds)
    place = np.zeros(len(every), np.int64)
    place[distinct] = np.arange(len(distinct))
    return every.take(best), take(few, place[best])


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
    if worst_key is not None and len(table):
        plain = recomputing(table, np.zeros(len(table), np.int64))
        scores, least = timed(world, plain, sure(len(table)))
        table = table.take(np.flatnonzero(hopeful(resolved, table, scores, least, worst_key)))
    if not len(table):
        return table, sure(0)
    every, owner, number = _settings(resolved, table)
    layers = first_fitting(world, every, lambda plans: accepted(resolved, plans))
    needless = np.zeros(len(table), np.bool_)
    needless[owner[layers == 0]] = True
    some = (layers > 0) & (layers < layers_per_stage(world, every)) & ~needless[owner]
    rows = np.flatnonzero(some)
    chosen = recomputing(every.take(rows), layers[rows])
    scores, _ = timed(world, chosen, sure(len(rows)))
    best = _fastest_of(owner[rows], number[rows], scores.seconds)
    return punctual(resolved, *tuned_buckets(resolved, chosen.take(best)))


def tuned_buckets(resolved: Resolved, table: PlanTable) -> tuple[PlanTable, Scores]:
    """The plans with the best rung of their buckets; their offload ratio stays."""
    fixed = resolved.search.fixed | {"offload_ratio": 1.0}
    search = resolved.search.model_copy(update={"fixed": fixed})
    return tuned(replace(resolved, search=search), table)


def hopeful(
    resolved: Resolved, table: PlanTable, scores: Scores, least: Floats, worst_key: float | None
) -> Bools:
    """Whether each plan may still enter the ranking at the least seconds it can take [plans]."""
    if worst_key is None:
        return np.ones(len(table), np.bool_)
    hoped = replace(scores, seconds=least)
    return np.asarray(keys(resolved.search, table, hoped)[0] <= worst_key)


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
    count = len(seconds) // max(plans, 1)
    each = seconds.reshape(plans, count)
    close = each <= each.min(axis=1, keepdims=True) * (1 + WORTH)
    picked: Ints = np.arange(plans) * count + close.argmax(axis=1)
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
    fine = FineKnobs(resolved.search)
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


def punctual(resolved: Resolved, table: PlanTable, scores: Scores) -> tuple[PlanTable, Scores]:
    """The plans that meet the deadline."""
    rows = np.flatnonzero(meets_deadline(resolved.world, resolved.search, scores))
    return take(table, rows), take(scores, rows)
