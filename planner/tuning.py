"""Solves what is not enumerated: fine knobs, and how many layers to recompute."""

from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from cost_model.calibration.memory import default_memory_coefficients
from cost_model.memory.oversized import stays
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

FEW = 2_000
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
    narrow, more, owner = narrow.take(waiting), take(more, waiting), owner[waiting]
    narrow, more, owner = _and_without_overlap(resolved, narrow, more, owner)
    rescued, more = _rescued(resolved, narrow, more, owner)
    rows = np.flatnonzero(roomy)
    kept, known = join([table.take(rows), rescued]), join([take(scores, rows), more])
    known, least = timed(world, kept, known)
    return Fitting(kept, known, least, np.arange(len(kept)) < len(rows))


def _and_without_overlap(
    resolved: Resolved, table: PlanTable, scores: Scores, owner: Ints
) -> tuple[PlanTable, Scores, Ints]:
    """Plans at narrower rungs, and behind them those of them that may fit without overlap alone.

    owner: whose each is; the order stays that of the owners.
    """
    fine = FineKnobs(resolved.search, resolved.training.optimizer)
    rows = np.flatnonzero(one_bucket_less(resolved, table, scores) & fine.may_wait(table))
    if not len(rows):
        return table, scores, owner
    rows = rows[np.unique(owner[rows], return_index=True)[1]]
    more, whose = fine.waiting(table.take(rows))
    every = join([table, more])
    known = join([scores, held(resolved.world, more)])
    owner = np.concatenate([owner, owner[rows[whose]]])
    order = np.argsort(owner, kind="stable")
    return every.take(order), take(known, order), owner[order]


def one_bucket_less(resolved: Resolved, table: PlanTable, scores: Scores) -> Bools:
    """Whether each plan that does not fit may do so without overlap [plans].

    With overlap there is one bucket more, of at most four bytes an element; and gradients larger
    than a bucket may stay (cost_model.memory.oversized).
    """
    fits = acceptable(resolved.world, resolved.search, scores)
    near = scores.total_bytes - 4.0 * table.reduce_bucket <= _most_bytes(resolved)
    known = resolved.memory_coefficients or default_memory_coefficients()
    may: Bools = ~fits & (near | stays(known, resolved.model, resolved.training, table))
    return may


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

    At ZeRO 1 and 2 every rung is tried, without overlap where that may help. At ZeRO 3
    the share offloaded is settled at the tightest rung, then the rung, then the prefetch.
    """
    fine = FineKnobs(resolved.search, resolved.training.optimizer)
    table = found.table
    three = table.zero_stage == 3
    partly = np.flatnonzero(fine.has_ratio(table))
    rungs = fine.has_rungs(table) & ~three
    # where traffic hides, copies to the host do not: without overlap they may
    away = (table.offload_optimizer > 0) | table.cpu_checkpointing
    tight = rungs & (~found.roomy | away) & fine.may_wait(table)
    kinds = (
        (partly, len(RATIOS)),
        (np.flatnonzero(rungs & ~tight), RUNGS),
        (np.flatnonzero(tight), 2 * RUNGS),
    )
    settled, scores = table, found.scores
    if len(partly) + rungs.sum():
        shares, number = _variants(table.take(partly), len(RATIOS))
        parts = [fine.at_rung(fine.with_ratio(shares, np.array(RATIOS).take(number)), TIGHT)]
        for of_kind, count in kinds[1:]:
            buckets, number = _variants(table.take(of_kind), count)
            parts.append(fine.at_rung(buckets, number))
        every = join(parts)
        every_scores, seconds = _seconds(resolved, every)
        ends = np.cumsum([len(part) for part in parts])
        best = np.concatenate(
            [
                end - len(part) + _fastest(len(of_kind), seconds[end - len(part) : end])
                for (of_kind, _), part, end in zip(kinds, parts, ends, strict=True)
            ]
        )
        rows = np.concatenate([of_kind for of_kind, _ in kinds])
        settled = _put(table, rows, every.take(best))
        scores = _put(scores, rows, take(every_scores, best))
    # settled at the tightest rung, and known to fit at the first
    first = np.flatnonzero(three & found.roomy & (settled.offload_ratio == table.offload_ratio))
    scores = _put(scores, first, take(found.scores, first))
    roomy = np.zeros(len(table), np.bool_)
    roomy[first] = True
    return _widened(resolved, settled, scores, roomy)


def _widened(
    resolved: Resolved, table: PlanTable, scores: Scores, roomy: Bools | None = None
) -> tuple[PlanTable, Scores]:
    """Plans of ZeRO 3 at the best rung that fits, then with the best prefetch; and their scores.

    Plans of other stages stay as they are. The rungs behind the first differ in memory alone.
    roomy: which plans are known to fit at the first; None asks for all, and the scores hold no
    memory yet.
    """
    world, fine = resolved.world, FineKnobs(resolved.search, resolved.training.optimizer)
    with_prefetch = fine.has_prefetch(table)
    rows = np.flatnonzero(with_prefetch)
    few = table.take(rows)
    fits = np.ones((len(rows), RUNGS), np.bool_)
    asked = np.arange(len(rows)) if roomy is None else np.flatnonzero(~roomy[rows])
    every, number = _variants(few.take(asked), RUNGS)
    every = fine.at_rung(every, number)
    if roomy is None:  # one call for all
        others = np.flatnonzero(~with_prefetch)
        sizes = held(world, join([every, table.take(others)]))
        rest = replace(take(sizes, slice(len(every), None)), seconds=scores.seconds[others])
        sizes, scores = take(sizes, slice(0, len(every))), _put(scores, others, rest)
    elif len(asked):
        sizes = held(world, every)
    if not len(rows):
        return table, scores
    if len(asked):
        fits[asked] = acceptable(world, resolved.search, sizes).reshape(-1, RUNGS)
        fits[asked, TIGHT] = True
    # both reduce buckets, and every prefetch of each: the rungs differ in no more that costs time
    ahead = len(fine.prefetches)
    every, number = _variants(few, 2 * ahead)
    every = fine.at_rung(every, np.where(number < ahead, 0, TIGHT))
    every = fine.with_prefetch(every, number % ahead)
    timings, _ = timed(world, every, sure(len(every)))
    seconds = timings.seconds.reshape(len(rows), 2, ahead)
    of_rung = np.repeat(seconds[:, 1:, 0], RUNGS, axis=1)
    of_rung[:, 0] = seconds[:, 0, 0]
    each = np.arange(len(rows))
    rung = _fastest(len(rows), np.where(fits, of_rung, np.inf).ravel()) - each * RUNGS
    wide = fine.at_rung(few, rung)
    mine = seconds[each, (rung > 0).astype(np.int64)]
    alive = np.array(fine.prefetches) <= wide.max_live_params[:, None]
    alive[:, 0] = True
    number = _fastest(len(rows), np.where(alive, mine, np.inf).ravel()) - each * ahead
    wide = fine.with_prefetch(wide, number)
    known = take(scores, rows)
    unknown = np.setdiff1d(np.flatnonzero(rung > 0), asked) if roomy is not None else each[:0]
    if len(asked):
        known = _put(known, asked, take(sizes, np.arange(len(asked)) * RUNGS + rung[asked]))
    if len(unknown):
        known = _put(known, unknown, held(world, wide.take(unknown)))
    known = replace(known, seconds=mine[each, number])
    return _put(table, rows, wide), _put(scores, rows, known)


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

    Every rung for ZeRO 1 and 2, and the tightest one without overlap; for ZeRO 3 the tightest and
    the first, whose larger bucket starts less often, with every ratio where the optimizer is
    offloaded. Returns the variants, whose they are, and their number.
    """
    fine = FineKnobs(resolved.search, resolved.training.optimizer)
    rungs, partly = fine.has_rungs(table), fine.has_ratio(table)
    three = table.zero_stage == 3
    waits = fine.may_wait(table)
    shares = np.where(partly, len(RATIOS), 1)
    counts = np.where(rungs, np.where(three, 2 * shares, RUNGS + waits), shares)
    owner = np.repeat(np.arange(len(table)), counts)
    starts = np.cumsum(counts) - counts
    number = np.arange(len(owner)) - starts[owner]
    every = table.take(owner)
    every = fine.with_ratio(every, np.array(RATIOS).take(number % shares[owner]))
    first = number >= shares[owner]
    of_three = np.where(first, 0, TIGHT)
    rung = np.where(three[owner], of_three, np.where(number == RUNGS, RUNGS + TIGHT, number))
    return fine.at_rung(every, rung), owner, number
