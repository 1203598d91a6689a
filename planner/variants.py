"""Variants of plans: rows repeated, the best of each plan picked, rows put back."""

from dataclasses import fields, replace
from typing import TypeVar

import numpy as np

from cost_model.plans import Floats, Ints, PlanTable
from planner.objectives import Scores

WORTH = 1e-3
"""Share of a step that a setting must save to be taken instead of a roomier one."""

Columns = TypeVar("Columns", PlanTable, Scores)


def put(columns: Columns, rows: Ints, values: Columns) -> Columns:
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


def variants(table: PlanTable, count: int) -> tuple[PlanTable, Ints]:
    """Every plan `count` times, one after the other, and the number of each copy."""
    rows = np.repeat(np.arange(len(table)), count)
    return table.take(rows), np.tile(np.arange(count), len(table))


def fastest(plans: int, seconds: Floats) -> Ints:
    """Of each plan's variants the first that no other beats by more than it is worth [plans].

    seconds: [plans x variants], one plan after the other.
    """
    if not plans:
        return np.zeros(0, np.int64)
    each = seconds.reshape(plans, -1)
    close = each <= each.min(axis=1, keepdims=True) * (1 + WORTH)
    picked: Ints = np.arange(plans) * each.shape[1] + close.argmax(axis=1)
    return picked


def fastest_of(owner: Ints, number: Ints, seconds: Floats) -> Ints:
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
