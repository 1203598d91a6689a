"""All legal plans of a request as columns: axes are crossed one by one, rules mask in between."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_model.plans import Bools, Ints, Plan, PlanTable
from planner.request.search import SearchOptions
from planner.rules import RULES, Rule, World
from planner.space.axes import ACTIVATIONS, DERIVED, STATES, STRUCTURE, Axes, axes, software_allowed

Column = npt.NDArray[Any]
Bound = Callable[[PlanTable], Bools]
"""True where no plan that refines this row can be ruled out [plans]."""

_DTYPES: dict[Any, Any] = {bool: np.bool_, float: np.float64}


def _dtype(name: str) -> Any:
    return _DTYPES.get(Plan.model_fields[name].annotation, np.int64)


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
        self.columns: dict[str, Column] = {
            "software": np.array([int(spec.software)]),
            **{name: np.array([value], _dtype(name)) for name, value in spec.fixed.items()},
        }
        free = {f.name for f in fields(PlanTable)} - set(spec.values) - set(DERIVED)
        self.known = free
        self.pending = list(rules)

    def table(self) -> PlanTable:
        """The rows so far; columns not reached yet hold their neutral values, unmaterialised."""
        full: dict[str, Any] = {}
        for name, info in Plan.model_fields.items():
            column = self.columns.get(name)
            if column is None:
                column = np.broadcast_to(np.asarray(info.default, _dtype(name)), (self.length,))
            full[name] = column
        return PlanTable(**full)

    def keep(self, mask: Bools) -> None:
        """Drops the rows outside the mask."""
        if mask.all():
            return
        self.columns = {name: column[mask] for name, column in self.columns.items()}
        self.length = int(mask.sum())

    def cross(self, name: str, values: Ints) -> None:
        """Every row with every value."""
        count = len(values)
        self.columns = {n: np.repeat(column, count) for n, column in self.columns.items()}
        self.columns[name] = np.tile(values.astype(_dtype(name)), self.length)
        self.length *= count
        self.known.add(name)
        self._derive()
        self._apply_rules()

    def _derive(self) -> None:
        degrees = {"tp", "pp", "dp", "sp", "cp"}
        if "nodes" not in self.known and degrees <= self.known:
            per_node = self.world.cluster.node.gpus_per_node
            world_size = self.table().world_size
            self._set("nodes", -(-world_size // per_node))
        if "grad_accum" not in self.known and {"dp", "micro_batch"} <= self.known:
            unit = self.columns["dp"] * self.columns["micro_batch"]
            self._set("grad_accum", np.maximum(1, self.world.training.global_batch // unit))

    def _set(self, name: str, column: Ints) -> None:
        self.columns[name] = column
        self.known.add(name)
        limit = self.spec.bounds.get(name)
        if limit is not None:
            self.keep(limit.mask(column))

    def _apply_rules(self) -> None:
        ready = [r for r in self.pending if self.known.issuperset(r.reads)]
        self.pending = [r for r in self.pending if not self.known.issuperset(r.reads)]
        for one in ready:
            self.keep(one.legal(self.world, self.table()))


def _materialised(table: PlanTable) -> PlanTable:
    return PlanTable(
        **{f.name: np.ascontiguousarray(getattr(table, f.name)) for f in fields(table)}
    )


def enumerate_software(
    world: World, spec: Axes, bound: Bound | None = None, rules: tuple[Rule, ...] = RULES
) -> Block:
    """All legal plans of one software.

    bound: is asked once structure and states are known, with one sequence per micro-batch and
    everything that saves activation memory switched on; rows that it refuses are not refined.
    """
    growing = _Growing(world, spec, rules)
    for name in (*STRUCTURE, *STATES):
        growing.cross(name, spec.values[name])
    bounded = 0
    if bound is not None and growing.length:
        possible = bound(growing.table())
        bounded = int((~possible).sum())
        growing.keep(possible)
    for name in ACTIVATIONS:
        growing.cross(name, spec.values[name])
    assert not growing.pending, [r.name for r in growing.pending]
    return Block(_materialised(growing.table()), spec.combinations, bounded)


def enumerate_plans(
    world: World, search: SearchOptions, bound: Bound | None = None
) -> Iterator[Block]:
    """All legal plans, one block per software."""
    for software in software_allowed(search):
        spec = axes(world, search, software)
        yield enumerate_software(world, spec, bound)
