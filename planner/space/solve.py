"""How many layers to recompute is monotone in memory and in time: solved, not enumerated."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cost_model.plans import Bools, Floats, Ints, PlanTable, Recompute, Software
from planner.rules import World
from planner.rules.columns import largest_stage

CHEAP = 4_000
"""Rows up to which a call costs more than they do: few plans are cut at even distances too."""

LOWER = 0.98
"""Bytes to aim at, over bytes that did not fit."""

Judge = Callable[[PlanTable], tuple[Bools, Floats]]
"""Whether each plan fits, and the bytes of its worst rank [plans]."""


def layers_per_stage(world: World, table: PlanTable) -> Ints:
    """Layers of the largest stage, given ends apart [plans]."""
    return largest_stage(table, world.model.layers)


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


def first_fitting(world: World, rows: PlanTable, judge: Judge, most_bytes: float) -> Ints:
    """The smallest number of layers with which each plan fits; at most all of its stage [plans].

    Each layer kept instead of recomputed saves time and costs memory, so the fewest is the
    fastest. Memory is the highest of several straight lines in the number of layers: where the
    chord between two numbers meets `most_bytes` a plan surely fits, and is close to the fewest.
    """
    zero, whole = np.zeros(len(rows), np.int64), layers_per_stage(world, rows)
    ends = _with(rows, np.stack([zero, whole], axis=1))
    judged, total = judge(ends)
    fits, size = judged.reshape(-1, 2), total.reshape(-1, 2)
    low = np.where(fits[:, 0], -1, 0)  # does not fit
    high = np.where(fits[:, 0], 0, whole)  # fits
    below, above = size[:, 0], size[:, 1]
    open_rows = np.flatnonzero((high - low > 1) & fits[:, 1])
    while len(open_rows):
        at, to = low[open_rows], high[open_rows]
        # where that many bytes did not fit, the host leaves the GPU less of the odds: aim lower
        aim = np.minimum(most_bytes, LOWER * below[open_rows])
        fall = np.maximum(below[open_rows] - above[open_rows], 1.0)
        share = np.clip((below[open_rows] - aim) / fall, 0.0, 1.0)
        guess = at + np.ceil(share * (to - at) - 1e-9).astype(np.int64)
        tried = np.stack([(at + guess) // 2, guess - 1, guess, (guess + to) // 2], axis=1)
        cuts = CHEAP // len(open_rows) - tried.shape[1]
        if cuts > 1:
            cuts = min(cuts, int((to - at).max()))
            steps = at[:, None] + (to - at)[:, None] * np.arange(1, cuts) // cuts
            tried = np.concatenate([tried, steps], axis=1)
        tried = np.sort(np.clip(tried, at[:, None] + 1, to[:, None] - 1), axis=1)
        judged, total = judge(_with(rows.take(open_rows), tried))
        told, bytes_told = judged.reshape(tried.shape), total.reshape(tried.shape)
        for column in range(tried.shape[1]):
            k, good, n_bytes = tried[:, column], told[:, column], bytes_told[:, column]
            better, worse = good & (k < high[open_rows]), ~good & (k > low[open_rows])
            high[open_rows[better]], above[open_rows[better]] = k[better], n_bytes[better]
            low[open_rows[worse]], below[open_rows[worse]] = k[worse], n_bytes[worse]
        open_rows = open_rows[high[open_rows] - low[open_rows] > 1]
    return high


def _with(rows: PlanTable, layers: Ints) -> PlanTable:
    """Each plan with each of its numbers of layers [plans x numbers]."""
    every = rows.take(np.repeat(np.arange(len(rows)), layers.shape[1]))
    return recomputing(every, layers.ravel())
