"""Fine knobs, solved plan by plan instead of enumerated: buckets, live parameters, offload ratio.

A smaller bucket holds less memory and hides more of the traffic, at the price of more latencies;
without overlap there is one bucket less, and nothing is hidden; a larger prefetch starts less often
and hides less; fewer live parameters hold less; a smaller share of the optimizer on the host is
faster and holds more. None of them changes what another axis of the plan costs, so each plan is
ranked with the best of a few settings, the roomiest first.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cost_model.plans import Bools, Floats, Ints, Offload, Plan, PlanTable
from planner.request.search import Limit, SearchOptions
from planner.rules.columns import DEEPSPEED_ENGINE, is_software

_DEFAULT = {name: info.default for name, info in Plan.model_fields.items()}

REDUCE = (_DEFAULT["reduce_bucket"], 200_000_000, 100_000_000, 50_000_000)
"""Elements of the reduce bucket of ZeRO 1 and 2: DeepSpeed's default first."""

REDUCE_3 = (_DEFAULT["reduce_bucket"], 50_000_000, 50_000_000, 50_000_000)
LIVE_3 = (_DEFAULT["max_live_params"], _DEFAULT["max_live_params"], 300_000_000, 100_000_000)
"""ZeRO 3: elements of its reduce bucket, which is there for good, and of what it keeps gathered."""

PREFETCH = (_DEFAULT["prefetch_bucket"], 200_000_000, 500_000_000)
"""ZeRO 3: elements gathered ahead of use; what is alive is bounded by max_live_params."""

RUNGS = len(REDUCE)
"""Rungs with overlap. At ZeRO 1 and 2 as many follow without it, of the same sizes."""

TIGHT = RUNGS - 1
"""The rung that holds the least memory at ZeRO 3. At ZeRO 1 and 2 any rung may: a gradient larger
than the bucket is reduced outside of it, and held until it is."""

RATIOS = tuple(round(0.1 * tenth, 1) for tenth in range(10, 0, -1))
"""Shares of the optimizer in host RAM (ZeRO 3): all of it first."""

HELD = ("allgather_bucket", "persistence_threshold")
"""Elements that stay at DeepSpeed's default. The all-gather bucket does nothing: where torch has
all_gather_into_tensor, all weights are gathered at once (runtime/utils.py, all_gather_dp_groups).
The smallest parameters are a thousandth of a model: a study tunes their threshold."""

SOLVED = ("reduce_bucket", "overlap_comm", "prefetch_bucket", "max_live_params", "offload_ratio")
"""What is solved."""


def _allowed(value: int, limit: Limit | None) -> int:
    """The value, or the nearest that the limit holds."""
    if limit is None or limit.holds(value):
        return value
    if limit.values is not None:
        inside = [v for v in limit.values if limit.holds(v)]
        return min(inside, key=lambda v: abs(v - value), default=value)
    return max(value if limit.max is None else min(value, limit.max), limit.min or 0)


def held_value(name: str, search: SearchOptions) -> int:
    """What a fine knob is where it is not solved: its default, or the nearest within the limit."""
    return _allowed(_DEFAULT[name], search.limits.get(name))


@dataclass(frozen=True)
class FineKnobs:
    """The settings that a request leaves open."""

    search: SearchOptions
    optimizer: str = "adamw"

    def _column(self, name: str, values: tuple[int, ...]) -> Ints:
        limit = self.search.limits.get(name)
        return np.array([_allowed(value, limit) for value in values], np.int64)

    @cached_property
    def _reduce(self) -> Ints:
        """[2, rungs]: of ZeRO 1 and 2, of ZeRO 3."""
        return np.stack([self._column("reduce_bucket", v) for v in (REDUCE, REDUCE_3)])

    @cached_property
    def _live(self) -> Ints:
        return self._column("max_live_params", LIVE_3)

    def has_rungs(self, table: PlanTable) -> Bools:
        """Whether each plan has buckets that may vary: ZeRO under DeepSpeed's engine [plans]."""
        if {"reduce_bucket", "overlap_comm", "max_live_params"} <= set(self.search.fixed):
            return np.zeros(len(table), np.bool_)
        rungs: Bools = (table.zero_stage > 0) & is_software(table, *DEEPSPEED_ENGINE)
        return rungs

    def has_ratio(self, table: PlanTable) -> Bools:
        """Whether a part of each plan's optimizer may stay on the GPU [plans]."""
        if "offload_ratio" in self.search.fixed or self.optimizer != "adamw":
            return np.zeros(len(table), np.bool_)
        partly: Bools = (table.zero_stage == 3) & (table.offload_optimizer == int(Offload.CPU))
        return partly

    def at_rung(self, table: PlanTable, rung: Ints | int) -> PlanTable:
        """The plans with their buckets at a rung; plans without rungs as they are."""
        rows = np.flatnonzero(self.has_rungs(table))
        number = np.broadcast_to(np.asarray(rung), (len(table),))[rows]
        three = table.zero_stage[rows] == 3
        columns: dict[str, Any] = {}
        if "overlap_comm" not in self.search.fixed:
            columns["overlap_comm"] = table.overlap_comm.copy()
            columns["overlap_comm"][rows] = three | (number < RUNGS)
        number = number % RUNGS
        if "reduce_bucket" not in self.search.fixed:
            columns["reduce_bucket"] = table.reduce_bucket.copy()
            columns["reduce_bucket"][rows] = self._reduce[three.astype(np.int64), number]
        if "max_live_params" not in self.search.fixed:
            columns["max_live_params"] = table.max_live_params.copy()
            columns["max_live_params"][rows[three]] = self._live[number[three]]
        return replace(table, **columns)

    def narrower(self, table: PlanTable) -> tuple[PlanTable, Ints]:
        """Every plan at every rung that may hold less than the first, and whose row each is."""
        rungs = self.has_rungs(table)
        three = table.zero_stage == 3
        counts = np.where(rungs, np.where(three, 1, RUNGS - 1), 0)
        owner = np.repeat(np.arange(len(table)), counts)
        number = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
        rung = np.where(three[owner], TIGHT, number + 1)
        return self.at_rung(table.take(owner), rung), owner

    def may_wait(self, table: PlanTable) -> Bools:
        """Whether each plan may reduce without overlap, in one bucket instead of two [plans]."""
        if "overlap_comm" in self.search.fixed:
            return np.zeros(len(table), np.bool_)
        waits: Bools = self.has_rungs(table) & (table.zero_stage < 3)
        return waits

    def waiting(self, table: PlanTable) -> tuple[PlanTable, Ints]:
        """Every plan at every rung without overlap, and whose row each is."""
        rows = np.flatnonzero(self.may_wait(table))
        number = np.tile(np.arange(RUNGS, 2 * RUNGS), len(rows))
        owner = np.repeat(rows, RUNGS)
        return self.at_rung(table.take(owner), number), owner

    @cached_property
    def prefetches(self) -> tuple[int, ...]:
        """Prefetches of ZeRO 3 to choose from, DeepSpeed's first."""
        if "prefetch_bucket" in self.search.fixed:
            return (int(self.search.fixed["prefetch_bucket"]),)
        return tuple(self._column("prefetch_bucket", PREFETCH).tolist())

    def has_prefetch(self, table: PlanTable) -> Bools:
        """Whether each plan gathers ahead of use: ZeRO 3 under DeepSpeed's engine [plans]."""
        ahead: Bools = (table.zero_stage == 3) & is_software(table, *DEEPSPEED_ENGINE)
        return ahead

    def with_prefetch(self, table: PlanTable, number: Ints) -> PlanTable:
        """The plans of ZeRO 3 with one of the prefetches each [plans]."""
        return replace(table, prefetch_bucket=np.array(self.prefetches, np.int64).take(number))

    def with_ratio(self, table: PlanTable, ratio: Floats) -> PlanTable:
        """The plans with so much of the optimizer offloaded, where it may vary [plans]."""
        partly = self.has_ratio(table)
        return replace(table, offload_ratio=np.where(partly, ratio, table.offload_ratio))
