"""Drops layouts of which not even the most frugal refinement fits."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cost_model.plans import Bools, PlanTable, Recompute, Software
from planner.request.request import Resolved
from planner.rows import take
from planner.rules import World
from planner.scoring import BLOCK, accepted
from planner.space import Bound
from planner.space.fine import RATIOS, TIGHT, FineKnobs
from planner.space.solve import layers_per_stage


def frugal_variants(world: World, table: PlanTable) -> Iterator[tuple[PlanTable, Bools]]:
    """The same layouts with everything that saves activation memory switched on, and where it may.

    One sequence per micro-batch, full recompute, partitioned checkpoints in host RAM, chunked
    loss: no refinement of a row holds less GPU memory, with exceptions that come after it.
    Checkpoints in host RAM may be what the host has no room for, and a stage of a single layer
    holds its input beside what it recomputes.
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
    single = layers_per_stage(world, table) == 1
    for mode in (Recompute.NONE, Recompute.MLP):
        kept = np.full(n, int(mode))
        yield (
            replace(least, cpu_checkpointing=off, partition_activations=off, recompute=kept),
            single,
        )


def frugal_bound(resolved: Resolved) -> Bound:
    """Refuses layouts of which not even the most frugal refinement fits."""
    fine = FineKnobs(resolved.search)

    def possible(table: PlanTable) -> Bools:
        fits = np.zeros(len(table), np.bool_)
        for variant, where in frugal_variants(resolved.world, fine.at_rung(table, TIGHT)):
            open_rows = np.flatnonzero(~fits & where)
            for start in range(0, len(open_rows), BLOCK):
                rows = open_rows[start : start + BLOCK]
                part = take(variant, rows)
                fits[rows] = accepted(resolved, part)
                fits[rows[~fits[rows]]] = _rescued(resolved, part.take(~fits[rows]))
        return fits

    return possible


def _rescued(resolved: Resolved, table: PlanTable) -> Bools:
    """Whether less of the optimizer on the host makes a plan fit [plans]."""
    partly = np.flatnonzero(FineKnobs(resolved.search).has_ratio(table))
    fits = np.zeros(len(table), np.bool_)
    if len(partly):
        every = table.take(np.repeat(partly, len(RATIOS)))
        every = replace(every, offload_ratio=np.tile(RATIOS, len(partly)))
        fits[partly] = accepted(resolved, every).reshape(len(partly), -1).any(axis=1)
    return fits
