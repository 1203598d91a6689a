"""Which plans fit, at some setting of their fine knobs."""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from cost_model.calibration.memory import default_memory_coefficients
from cost_model.memory.oversized import stays
from cost_model.plans import Bools, Floats, Ints, PlanTable
from planner.candidate import GIB
from planner.objectives import Scores, acceptable
from planner.request.request import Resolved
from planner.rows import join, take
from planner.scoring import held, missing_bytes, timed
from planner.space.fine import RATIOS, FineKnobs
from planner.variants import variants

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
    near = scores.total_bytes - 4.0 * table.reduce_bucket <= most_bytes(resolved)
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
    every, number = variants(rest, len(RATIOS))
    every = fine.with_ratio(every, np.array(RATIOS).take(number))
    scores = held(world, every)
    fits = acceptable(world, search, scores).reshape(len(rest), len(RATIOS))
    rows = np.flatnonzero(fits.any(axis=1))
    rows = rows * len(RATIOS) + fits[rows].argmax(axis=1)
    return join([kept, every.take(rows)]), join([known, take(scores, rows)])


def most_bytes(resolved: Resolved) -> float:
    """Total bytes up to which a GPU holds a plan as surely as the request demands."""
    search, gpu = resolved.search, resolved.cluster.node.gpu.memory_gib * GIB
    known = resolved.memory_coefficients or default_memory_coefficients()
    chance = min(max(search.min_fits_probability, 1e-6), 1 - 1e-6)
    likely = gpu * np.exp(-known.spread.sigma * NormalDist().inv_cdf(chance))
    return float(min(likely, gpu - search.headroom_gib * GIB))
