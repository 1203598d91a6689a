"""Knobs in which memory is monotone are solved, not enumerated."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cost_model.plans import Bools, Ints, PlanTable, Recompute
from planner.rules import World

Accept = Callable[[PlanTable], Bools]
"""Whether each plan fits [plans]."""


AT_ONCE = 8_192
"""Rows up to which one call that tries every number is cheaper than several that halve."""


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
    most = int(layers_per_stage(world, rows).max())
    at_once = len(rows) * most <= AT_ONCE
    high = (_first_fitting if at_once else _halving)(world, rows, accept)
    fewer = np.flatnonzero(high < layers_per_stage(world, rows))
    return replace(rows, recompute_layers=high).take(fewer)


def _first_fitting(world: World, rows: PlanTable, accept: Accept) -> Ints:
    """Tries every number of layers of every plan in one call [plans]."""
    stage = layers_per_stage(world, rows)
    most = int(stage.max())
    layers = np.tile(np.arange(1, most + 1), len(rows))
    every = rows.take(np.repeat(np.arange(len(rows)), most))
    fits = accept(replace(every, recompute_layers=layers)).reshape(len(rows), most)
    first: Ints = np.minimum(np.where(fits.any(axis=1), fits.argmax(axis=1) + 1, stage), stage)
    return first


def _halving(world: World, rows: PlanTable, accept: Accept) -> Ints:
    """Halves the interval of every plan until one number is left [plans]."""
    low = np.zeros(len(rows), np.int64)  # does not fit
    high = layers_per_stage(world, rows)  # fits
    while (undecided := high - low > 1).any():
        middle = (low + high) // 2
        fits = accept(replace(rows, recompute_layers=np.maximum(middle, 1)))
        high = np.where(undecided & fits, middle, high)
        low = np.where(undecided & ~fits, middle, low)
    return high
