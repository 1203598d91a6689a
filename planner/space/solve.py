"""Knobs in which memory is monotone are solved, not enumerated."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cost_model.plans import Bools, Ints, PlanTable, Recompute
from planner.rules import World

Accept = Callable[[PlanTable], Bools]
"""Whether each plan fits [plans]."""


AT_ONCE = 4_096
"""Rows of one call up to which the calls themselves cost more than the rows."""


def layers_per_stage(world: World, table: PlanTable) -> Ints:
    """Layers of the largest stage [plans]."""
    layers: Ints = -(-world.model.layers // table.pp)
    return layers


def solvable(world: World, table: PlanTable) -> PlanTable:
    """The plans that recompute every layer of stages with more than one."""
    full = (table.recompute == int(Recompute.FULL)) & (table.recompute_layers < 0)
    return table.take(np.flatnonzero(full & (layers_per_stage(world, table) > 1)))


def without_recompute(table: PlanTable) -> PlanTable:
    """The same plans with every layer kept: faster than with any layer recomputed."""
    return replace(
        table,
        recompute=np.full(len(table), int(Recompute.NONE)),
        partition_activations=np.zeros(len(table), np.bool_),
        cpu_checkpointing=np.zeros(len(table), np.bool_),
    )


def fewest_recomputed(world: World, table: PlanTable, accept: Accept) -> PlanTable:
    """For plans that fit with every layer recomputed: the fewest layers with which they still fit.

    Each layer kept instead of recomputed saves time and costs memory, so the fewest is the
    fastest. Plans that fit without recompute, or only with all layers, give no row: those are in
    the space already.
    """
    if not len(table):
        return table
    rows = table.take(np.flatnonzero(~accept(without_recompute(table))))
    if not len(rows):
        return rows
    high = _first_fitting(world, rows, accept)
    fewer = np.flatnonzero(high < layers_per_stage(world, rows))
    return replace(rows, recompute_layers=high).take(fewer)


def _first_fitting(world: World, rows: PlanTable, accept: Accept) -> Ints:
    """The smallest number of layers with which each plan fits; all of its stage does [plans].

    Cuts the interval of every plan at several points at once: a call on few rows costs as much as
    one on thousands.
    """
    low = np.zeros(len(rows), np.int64)  # does not fit
    high = layers_per_stage(world, rows)  # fits
    points = int(np.clip(AT_ONCE // len(rows), 1, high.max()))
    cuts = np.arange(1, points + 1)
    while (high - low > 1).any():
        tried = low[:, None] + np.maximum(1, (high - low)[:, None] * cuts // (points + 1))
        tried = np.minimum(tried, np.maximum(high, 2)[:, None] - 1)
        every = rows.take(np.repeat(np.arange(len(rows)), points))
        fits = accept(replace(every, recompute_layers=tried.ravel())).reshape(tried.shape)
        undecided = (high - low > 1)[:, None]
        high = np.where(undecided & fits, tried, high[:, None]).min(axis=1)
        low = np.where(undecided & ~fits, tried, low[:, None]).max(axis=1)
    return high
