"""All legal plans of a request as columns: axes are crossed one by one, rules mask in between."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_model.plans import COLUMNS, Bools, Ints, PlanTable, repeated
from planner.request.search import SearchOptions
from planner.rows import join
from planner.rules import RULES, Rule, World, legal
from planner.space.axes import (
    ACTIVATIONS,
    DERIVED,
    PLACEMENT,
    SPLIT,
    STAGE_LAYERS,
    STATES,
    STRUCTURE,
    Axes,
    axes,
    software_allowed,
)
from planner.space.placements import PLACED, placement_columns
from planner.space.splits import split_columns

Column = npt.NDArray[Any]
Bound = Callable[[PlanTable], Bools]
"""True where no plan that refines this row can be ruled out [plans]."""
_NEUTRAL = {name: repeated(default, 2**40) for name, default in COLUMNS.items()}
"""Columns not reached yet, of more rows than a table will have; they take no memory."""


@dataclass(frozen=True)
class Block:
    """Legal plans of one software."""

    table: PlanTable
    combinations: int
    """Combinations of axis values that were considered."""
    bounded: int
    """Combinations of structure and states that were dropped by the bound."""


class _Growing:
    """A table that grows column by column; rules are applied as soon as they can be."""

    def __init__(self, world: World, spec: Axes, rules: tuple[Rule, ...]) -> None:
        self.world = world
        self.spec = spec
        self.length = 1
        self._table: PlanTable | None = None
        self.columns: dict[str, Column] = {
            "software": np.array([int(spec.software)]),
            **{name: np.array([value], COLUMNS[name].dtype) for name, value in spec.fixed.items()},
        }
        open_ = (set(spec.values) | set(DERIVED)) - set(spec.fixed)
        self.known = COLUMNS.keys() - open_
        # each rule waits for the columns that it reads, by name
        self.waiting = {one.name: set(one.reads) - self.known for one in rules}
        self.readers: dict[str, list[Rule]] = {name: [] for name in open_ - {SPLIT}}
        for one in rules:
            for name in self.waiting[one.name]:
                self.readers[name].append(one)
        self.ready = [one for one in rules if not self.waiting[one.name]]

    def table(self) -> PlanTable:
        """The rows so far; columns not reached yet hold their neutral values, unmaterialised."""
        if self._table is None:
            neutral = {name: column[: self.length] for name, column in _NEUTRAL.items()}
            self._table = PlanTable(**(neutral | self.columns))
        return self._table

    def keep(self, mask: Bools) -> None:
        """Drops the rows outside the mask."""
        if mask.all():
            return
        rows = np.flatnonzero(mask)
        self._change({name: column[rows] for name, column in self.columns.items()}, len(rows))

    def _change(self, columns: dict[str, Column], length: int) -> None:
        self.columns = columns
        self.length = length
        self._table = None

    def cross(self, name: str, values: Ints) -> None:
        """Every row with every value."""
        if name == SPLIT:
            self._split(values)
            return
        if name == PLACEMENT and PLACED in values:
            self._place()
            return
        count = len(values)
        typed = values.astype(COLUMNS[name].dtype)
        if count != 1 or typed[0] != COLUMNS[name][0]:  # a neutral column need not be there
            columns = dict(self.columns)
            if count != 1:
                columns = {n: np.repeat(column, count) for n, column in columns.items()}
            columns[name] = np.tile(typed, self.length)
            self._change(columns, self.length * count)
        self._know(name)
        self._derive()
        self._apply_rules()

    def _split(self, values: Ints) -> None:
        """Every row with the layers of every division into stages that its pipeline has."""
        if len(values) > 1 and not self.known.issuperset(STAGE_LAYERS):
            rows = np.repeat(np.arange(self.length), len(values))
            split = np.tile(values, self.length)
            pp = self.table().pp[rows]
            *layers, has = split_columns(self.world, self.spec.software, pp, split)
            kept = np.flatnonzero(has)
            columns = {n: column[rows[kept]] for n, column in self.columns.items()}
            columns |= {n: c[kept] for n, c in zip(STAGE_LAYERS, layers, strict=True)}
            self._change(columns, len(kept))
        for name in STAGE_LAYERS:
            self._know(name)
        self._limit_stages()
        self._apply_rules()

    def _limit_stages(self) -> None:
        """Drops rows whose first and last stage have layers outside the limits."""
        for name in STAGE_LAYERS:
            limit = self.spec.bounds.get(name)
            if limit is not None:
                self.keep(limit.mask(getattr(self.table(), name)))

    def _place(self) -> None:
        """Every row as it is, and every row of even stages with its stages on groups of nodes."""
        table = self.table()
        plain = np.flatnonzero((table.first_stage_layers == 0) & (table.last_stage_layers == 0))
        plain = plain[(table.pp[plain] > 1) & (table.vpp[plain] == 1)]
        width = (table.dp * table.tp * table.sp * table.cp)[plain]
        row, placement, last = placement_columns(
            self.world, self.spec.software, table.pp[plain], width, self.spec.even_stages
        )
        rows = np.concatenate([np.arange(self.length), plain[row]])
        first = getattr(table, STAGE_LAYERS[0])[rows]
        ends = np.concatenate([getattr(table, STAGE_LAYERS[1]), last])
        columns = {name: column[rows] for name, column in self.columns.items()}
        columns |= dict(zip(STAGE_LAYERS, (first, ends), strict=True))
        columns[PLACEMENT] = np.concatenate([np.zeros(self.length, np.int64), placement])
        given = self.spec.fixed.get(STAGE_LAYERS[1])
        self._change(columns, len(rows))
        if given is not None:
            self.keep(ends == given)
        self._know(PLACEMENT)
        self._limit_stages()
        self._apply_rules()

    def _derive(self) -> None:
        degrees = {"tp", "pp", "dp", "sp", "cp"}
        if "nodes" not in self.known and degrees <= self.known:
            per_node = self.world.cluster.node.gpus_per_node
            world_size = self.table().world_size
            self._set("nodes", -(-world_size // per_node))
        if "grad_accum" not in self.known and {"dp", "micro_batch"} <= self.known:
            unit = self.table().dp * self.table().micro_batch
            self._set("grad_accum", np.maximum(1, self.world.training.global_batch // unit))

    def _set(self, name: str, column: Ints) -> None:
        self._change(self.columns | {name: column}, self.length)
        self._know(name)
        limit = self.spec.bounds.get(name)
        if limit is not None:
            self.keep(limit.mask(column))

    def _know(self, name: str) -> None:
        """A column has its values: the rules that waited for it alone are ready."""
        self.known.add(name)
        for one in self.readers.pop(name, ()):
            self.waiting[one.name].discard(name)
            if not self.waiting[one.name]:
                self.ready.append(one)

    def _apply_rules(self) -> None:
        if self.ready:
            ready, self.ready = tuple(self.ready), []
            self.keep(legal(self.world, self.table(), ready))


def _layouts(world: World, spec: Axes, rules: tuple[Rule, ...]) -> _Growing:
    """Structure and states crossed: what bounds memory from below."""
    growing = _Growing(world, spec, rules)
    for name in (*STRUCTURE, *STATES):
        growing.cross(name, spec.values[name])
    return growing


def _refined(growing: _Growing, possible: Bools) -> Block:
    """The possible layouts crossed with everything that decides activations."""
    bounded = int((~possible).sum())
    growing.keep(possible)
    for name in ACTIVATIONS:
        growing.cross(name, growing.spec.values[name])
    assert not growing.readers, growing.readers
    return Block(growing.table(), growing.spec.combinations, bounded)


def enumerate_software(
    world: World, spec: Axes, bound: Bound | None = None, rules: tuple[Rule, ...] = RULES
) -> Block:
    """All legal plans of one software; `bound` as in enumerate_plans."""
    growing = _layouts(world, spec, rules)
    everything = np.ones(growing.length, np.bool_)
    return _refined(growing, everything if bound is None else bound(growing.table()))


def enumerate_plans(
    world: World, search: SearchOptions, bound: Bound | None = None
) -> Iterator[Block]:
    """All legal plans, one block per software.

    bound: is asked once, with the layouts of all software; those that it refuses are not refined.
    """
    every = [
        _layouts(world, axes(world, search, software), RULES)
        for software in software_allowed(search)
    ]
    if not every:
        return
    joined = join([growing.table() for growing in every])
    possible = np.ones(len(joined), np.bool_) if bound is None else bound(joined)
    ends = np.cumsum([growing.length for growing in every])[:-1]
    for growing, mask in zip(every, np.split(possible, ends), strict=True):
        yield _refined(growing, mask)
