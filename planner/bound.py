"""Drops layouts of which not even the most frugal refinement fits."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cost_model.plans import BLOCK, Bools, Ints, PlanTable, Recompute, Software
from planner.fitting import one_bucket_less
from planner.objectives import acceptable
from planner.request.request import Resolved
from planner.rows import join
from planner.rules import World
from planner.scoring import held
from planner.space import Bound
from planner.space.fine import RATIOS, FineKnobs
from planner.space.solve import layers_per_stage


def frugal_variants(world: World, table: PlanTable) -> Iterator[tuple[PlanTable, Bools]]:
    """The same layouts with everything that saves activation memory switched on, and where it may.

    One sequence per micro-batch, full recompute, partitioned checkpoints in host RAM, chunked
    loss: no refinement of a row holds less GPU memory, with exceptions that come after it.
    Checkpoints in host RAM may be what the host has no room for; a single micro-batch needs no
    gradients that wait for the next; and a stage of a single layer holds its input beside what it
    recomputes.
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
    whole = np.maximum(1, world.training.global_batch // table.dp)
    once = replace(least, micro_batch=whole, grad_accum=np.ones(n, np.int64))
    yield once, (table.zero_stage < 3) & (whole > 1)
    single = layers_per_stage(world, table) == 1
    for mode in (Recompute.NONE, Recompute.MLP):
        kept = np.full(n, int(mode))
        yield (
            replace(least, cpu_checkpointing=off, partition_activations=off, recompute=kept),
            single,
        )


def frugal_bound(resolved: Resolved) -> Bound:
    """Refuses layouts of which not even the most frugal refinement fits."""
    fine = FineKnobs(resolved.search, resolved.training.optimizer)

    def variants(table: PlanTable) -> Iterator[tuple[PlanTable, Ints]]:
        """Every frugal variant and whose it is; last those with less of the optimizer on a host
        that may have no room for all of it."""
        for variant, where in frugal_variants(resolved.world, table):
            rows = np.flatnonzero(where)
            yield variant.take(rows), rows
            narrow, owner = fine.narrower(variant.take(rows))
            yield narrow, rows[owner]
            partly = np.flatnonzero(fine.has_ratio(narrow))
            shares = replace(
                narrow.take(np.repeat(partly, len(RATIOS))),
                offload_ratio=np.tile(RATIOS, len(partly)),
            )
            yield shares, np.repeat(rows[owner[partly]], len(RATIOS))

    def possible(table: PlanTable) -> Bools:
        fits = np.zeros(len(table), np.bool_)
        near: list[tuple[PlanTable, Ints]] = []

        def ask(every: PlanTable, owner: Ints) -> None:
            for start in range(0, len(every), BLOCK):
                rows = np.arange(start, min(start + BLOCK, len(every)))
                rows = rows[~fits[owner[rows]]]
                asked = every.take(rows)
                scores = held(resolved.world, asked)
                fits[owner[rows[acceptable(resolved.world, resolved.search, scores)]]] = True
                close = np.flatnonzero(one_bucket_less(resolved, asked, scores))
                near.append((asked.take(close), owner[rows[close]]))

        parts, owners = zip(*variants(table), strict=True)
        ask(join(parts), np.concatenate(owners))
        for close, whose in tuple(near):
            left = np.flatnonzero(~fits[whose])
            waiting, of_row = fine.waiting(close.take(left))
            ask(waiting, whose[left[of_row]])
        return fits

    return possible
