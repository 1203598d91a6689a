"""Knobs in which memory is monotone are solved, not enumerated."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cost_model.plans import Bools, Ints, PlanTable, Recompute
from planner.rules import World

Accept = Callable[[PlanTable], Bools]
"""Whether each plan fits [plans]."""


AT_ONCE = 8_192
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
    return _recomputing(table, np.zeros(len(table), np.int64))


def fewest_recomputed(world: World, table: PlanTable, accept: Accept) -> PlanTable:
    """For plans that fit with every layer recomputed: the fewest layers with which they still fit.

    Each layer kept instead of recomputed saves time and costs memory, so the fewest is the
    fastest. Plans that fit without recompute, or only with all layers, give no row: those are in
    the space already.
    """
    if not len(table):
        return table
    layers = _first_fitting(world, table, accept)
    some = np.flatnonzero((layers > 0) & (layers < layers_per_stage(world, table)))
    return replace(table, recompute_layers=layers).take(some)


def _recomputing(table: PlanTable, layers: Ints) -> PlanTable:
    """The plans with so many layers recomputed; none is no recompute at all."""
    any_layer = layers > 0
    return replace(
        table,
        recompute=np.where(any_layer, table.recompute, int(Recompute.NONE)),
        recompute_layers=np.where(any_layer, layers, -1),
        partition_activations=table.partition_activations & any_layer,
        cpu_checkpointing=table.cpu_checkpointing & any_layer,
    )


def _first_fitting(world: World, rows: PlanTable, accept: Accept) -> Ints:
    """The smallest number of layers with which each plan fits; all of its stage does [plans].

    Cuts the interval of every plan at several points at once: a call on few rows costs as much as
    one on thousands.
    """
    low = np.full(len(rows), -1)  # does not fit
    high = layers_per_stage(world, rows)  # fits
    points = int(np.clip(AT_ONCE // len(rows), 1, high.max() + 1))
    cuts = np.arange(1, points + 1)
    while (high - low > 1).any():
        tried = low[:, None] + np.maximum(1, (high - low)[:, None] * cuts // (points + 1))
        tried = np.minimum(tried, high[:, None] - 1)
        every = rows.take(np.repeat(np.arange(len(rows)), points))
        fits = accept(_recomputing(every, tried.ravel())).reshape(tried.shape)
        undecided = (high - low > 1)[:, None]
        high = np.where(undecided & fits, tried, high[:, None]).min(axis=1)
        low = np.where(undecided & ~fits, tried, low[:, None]).max(axis=1)
    return high
