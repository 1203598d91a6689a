"""How many layers to recompute is monotone in memory and in time: solved, not enumerated."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cost_model.plans import Bools, Ints, PlanTable, Recompute, Software
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
    """The plans that recompute every layer, or its feed-forward, of stages with more than one.

    Megatron recomputes the feed-forward of all layers or of none.
    """
    some = table.recompute == int(Recompute.FULL)
    megatron = table.software == int(Software.MEGATRON)
    some = some | ((table.recompute == int(Recompute.MLP)) & ~megatron)
    whole = some & (table.recompute_layers < 0)
    return table.take(np.flatnonzero(whole & (layers_per_stage(world, table) > 1)))


def recomputing(table: PlanTable, layers: Ints) -> PlanTable:
    """The plans with so many layers recomputed; none is no recompute at all."""
    any_layer = layers > 0
    return replace(
        table,
        recompute=np.where(any_layer, table.recompute, int(Recompute.NONE)),
        recompute_layers=np.where(any_layer, layers, -1),
        partition_activations=table.partition_activations & any_layer,
        cpu_checkpointing=table.cpu_checkpointing & any_layer,
    )


def first_fitting(world: World, rows: PlanTable, accept: Accept) -> Ints:
    """The smallest number of layers with which each plan fits; at most all of its stage [plans].

    Each layer kept instead of recomputed saves time and costs memory, so the fewest is the
    fastest. Cuts the interval of every plan at several points at once: a call on few rows costs as
    much as one on thousands.
    """
    low = np.full(len(rows), -1)  # does not fit
    high = layers_per_stage(world, rows)  # fits
    points = int(np.clip(AT_ONCE // max(len(rows), 1), 1, high.max(initial=1) + 1))
    cuts = np.arange(1, points + 1)
    while (high - low > 1).any():
        tried = low[:, None] + np.maximum(1, (high - low)[:, None] * cuts // (points + 1))
        tried = np.minimum(tried, high[:, None] - 1)
        every = rows.take(np.repeat(np.arange(len(rows)), points))
        fits = accept(recomputing(every, tried.ravel())).reshape(tried.shape)
        undecided = (high - low > 1)[:, None]
        high = np.where(undecided & fits, tried, high[:, None]).min(axis=1)
        low = np.where(undecided & ~fits, tried, low[:, None]).max(axis=1)
    return high
