"""Solves what is not enumerated: fine knobs, and how many layers to recompute."""

from dataclasses import replace

import numpy as np

from cost_model.plans import Bools, Floats, Ints, PlanTable
from planner.fitting import FEW, Fitting, most_bytes
from planner.objectives import Scores, acceptable, keys, meets_deadline
from planner.request.request import Resolved
from planner.rows import join, take
from planner.scoring import held, sure, timed
from planner.space.fine import RATIOS, RUNGS, TIGHT, FineKnobs
from planner.space.solve import first_fitting, layers_per_stage, recomputing, solvable
from planner.variants import fastest, fastest_of, put, variants


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
        shares, number = variants(table.take(partly), len(RATIOS))
        parts = [fine.at_rung(fine.with_ratio(shares, np.array(RATIOS).take(number)), TIGHT)]
        for of_kind, count in kinds[1:]:
            buckets, number = variants(table.take(of_kind), count)
            parts.append(fine.at_rung(buckets, number))
        every = join(parts)
        every_scores, seconds = _seconds(resolved, every)
        ends = np.cumsum([len(part) for part in parts])
        best = np.concatenate(
            [
                end - len(part) + fastest(len(of_kind), seconds[end - len(part) : end])
                for (of_kind, _), part, end in zip(kinds, parts, ends, strict=True)
            ]
        )
        rows = np.concatenate([of_kind for of_kind, _ in kinds])
        settled = put(table, rows, every.take(best))
        scores = put(scores, rows, take(every_scores, best))
    # settled at the tightest rung, and known to fit at the first
    first = np.flatnonzero(three & found.roomy & (settled.offload_ratio == table.offload_ratio))
    scores = put(scores, first, take(found.scores, first))
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
    every, number = variants(few.take(asked), RUNGS)
    every = fine.at_rung(every, number)
    if roomy is None:  # one call for all
        others = np.flatnonzero(~with_prefetch)
        sizes = held(world, join([every, table.take(others)]))
        rest = replace(take(sizes, slice(len(every), None)), seconds=scores.seconds[others])
        sizes, scores = take(sizes, slice(0, len(every))), put(scores, others, rest)
    elif len(asked):
        sizes = held(world, every)
    if not len(rows):
        return table, scores
    if len(asked):
        fits[asked] = acceptable(world, resolved.search, sizes).reshape(-1, RUNGS)
        fits[asked, TIGHT] = True
    # both reduce buckets, and every prefetch of each: the rungs differ in no more that costs time
    ahead = len(fine.prefetches)
    every, number = variants(few, 2 * ahead)
    every = fine.at_rung(every, np.where(number < ahead, 0, TIGHT))
    every = fine.with_prefetch(every, number % ahead)
    timings, _ = timed(world, every, sure(len(every)))
    seconds = timings.seconds.reshape(len(rows), 2, ahead)
    of_rung = np.repeat(seconds[:, 1:, 0], RUNGS, axis=1)
    of_rung[:, 0] = seconds[:, 0, 0]
    each = np.arange(len(rows))
    rung = fastest(len(rows), np.where(fits, of_rung, np.inf).ravel()) - each * RUNGS
    wide = fine.at_rung(few, rung)
    mine = seconds[each, (rung > 0).astype(np.int64)]
    alive = np.array(fine.prefetches) <= wide.max_live_params[:, None]
    alive[:, 0] = True
    number = fastest(len(rows), np.where(alive, mine, np.inf).ravel()) - each * ahead
    wide = fine.with_prefetch(wide, number)
    known = take(scores, rows)
    unknown = np.setdiff1d(np.flatnonzero(rung > 0), asked) if roomy is not None else each[:0]
    if len(asked):
        known = put(known, asked, take(sizes, np.arange(len(asked)) * RUNGS + rung[asked]))
    if len(unknown):
        known = put(known, unknown, held(world, wide.take(unknown)))
    known = replace(known, seconds=mine[each, number])
    return put(table, rows, wide), put(scores, rows, known)


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
    bounded = worst_key is not None or search.deadline_days is not None
    if bounded and len(table) > FEW:
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
    best = fastest_of(owner[rows], number[rows], scores.seconds)
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

    return first_fitting(world, table, judge, most_bytes(resolved))


def hopeful(
    resolved: Resolved, table: PlanTable, scores: Scores, least: Floats, worst_key: float | None
) -> Bools:
    """Whether each plan may still enter the ranking at the least seconds it can take [plans]."""
    hoped = replace(scores, seconds=least)
    on_time = meets_deadline(resolved.world, resolved.search, hoped)
    if worst_key is None:
        return on_time
    return np.asarray(on_time & (keys(resolved.search, table, hoped)[0] <= worst_key))


def punctual(resolved: Resolved, table: PlanTable, scores: Scores) -> tuple[PlanTable, Scores]:
    """The plans that meet the deadline."""
    if resolved.search.deadline_days is None:
        return table, scores
    rows = np.flatnonzero(meets_deadline(resolved.world, resolved.search, scores))
    return take(table, rows), take(scores, rows)


def _seconds(resolved: Resolved, table: PlanTable) -> tuple[Scores, Floats]:
    """Scores of every row, and its step time where it fits, else infinite."""
    world = resolved.world
    scores = held(world, table)
    fits = acceptable(world, resolved.search, scores)
    scores, _ = timed(world, table, scores)
    return scores, np.where(fits, scores.seconds, np.inf)


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
