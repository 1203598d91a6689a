"""Memory of plans whose pipeline stages lie on groups of different nodes.

Each group is predicted on its own nodes, with its own stages alone. What must fit is the rank that
comes nearest to what its own GPU and host have.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cost_model.memory.capacity import Capacity
from cost_model.memory.on_demand import OnDemand
from cost_model.placement import Placed, Placement
from cost_model.plans import Bools, Floats, Ints, Plan, PlanTable
from cost_model.prediction import MemoryPrediction
from cost_model.specs import ClusterSpec

EVEN = -1
"""The group of plans for which all nodes count as equal."""

OneMemory = Callable[[ClusterSpec, PlanTable, int | None], MemoryPrediction]
"""Memory on one group of nodes: of the stages of that group, or of all."""


def placed(cluster: ClusterSpec, layers: int, table: PlanTable) -> Bools:
    """Which plans have their stages on the groups of the cluster, as far as that can be [plans]."""
    groups = len(cluster.groups)
    if groups < 2 or not table.placement.any():
        return np.zeros(len(table), np.bool_)
    parts: dict[int, int] = {}
    for value in np.unique(table.placement).tolist():
        parts[value] = len(Placement(value).parts)
    number = np.array([parts[value] for value in table.placement.tolist()])
    last = Placed.of(table.placement, table.pp, layers, groups)
    sound: Bools = (number == groups - 1) & (last.stages[-1] > 0)
    return sound & (last.layers[-1] >= last.stages[-1])


def nodes_of_stage(cluster: ClusterSpec, plan: Plan, layers: int, stage: int) -> ClusterSpec:
    """The nodes that a pipeline stage of a plan lies on: a group's, or the cluster's."""
    if not placed(cluster, layers, PlanTable.from_plans([plan]))[0]:
        return cluster
    behind = 0
    counts = [stages for stages, _ in plan.placement.groups(plan.pp, layers)]
    for group, stages in zip(cluster.groups, counts, strict=True):
        behind += stages
        if stage < behind:
            return group
    raise ValueError(f"no stage {stage} in a pipeline of {plan.pp}")


def memory_over_groups(
    cluster: ClusterSpec, layers: int, table: PlanTable, one: OneMemory
) -> MemoryPrediction:
    """Memory where groups of nodes differ: of the group nearest to its limits [plans]."""
    on_groups = placed(cluster, layers, table)
    plain = cluster.model_copy(update={"groups": ()})
    if not on_groups.any():
        even = one(plain, replace(table, placement=np.zeros_like(table.placement)), None)
        return replace(even, node_group=np.full(len(table), EVEN) if cluster.groups else None)
    choices: list[tuple[int, Ints, MemoryPrediction]] = []
    rows = np.flatnonzero(~on_groups)
    if len(rows):
        even_rows = replace(table.take(rows), placement=np.zeros(len(rows), np.int64))
        choices.append((EVEN, rows, one(plain, even_rows, None)))
    rows = np.flatnonzero(on_groups)
    few = table.take(rows)
    found = [one(group, few, number) for number, group in enumerate(cluster.groups)]
    worst = np.argmax(
        [_fullness(group, held) for group, held in zip(cluster.groups, found, strict=True)], axis=0
    )
    for number, held in enumerate(found):
        here = np.flatnonzero(worst == number)
        if len(here):
            choices.append((number, rows[here], _rows(held, here)))
    return _joined_memory(len(table), choices)


def _fullness(cluster: ClusterSpec, held: MemoryPrediction) -> Floats:
    """Share of what there is that a plan takes, of GPU or host, whichever is fuller [plans]."""
    there = Capacity.of(cluster, held)
    share: Floats = np.maximum(held.total_bytes / there.gpu, held.host_bytes / there.host)
    return np.maximum(share, np.where(held.nvme_bytes > there.flash, np.inf, 0.0))


def _rows(held: MemoryPrediction, rows: Ints) -> MemoryPrediction:
    def later(columns: Mapping[str, Floats]) -> OnDemand:
        return OnDemand(lambda: {name: values.take(rows) for name, values in columns.items()})

    return MemoryPrediction(
        allocated_bytes=held.allocated_bytes.take(rows),
        reserved_bytes=held.reserved_bytes.take(rows),
        total_bytes=held.total_bytes.take(rows),
        peak_stage=held.peak_stage.take(rows),
        peak_phase=held.peak_phase.take(rows),
        categories=later(held.categories),
        phases=later(held.phases),
        host_bytes=held.host_bytes.take(rows),
        nvme_bytes=held.nvme_bytes.take(rows),
    )


def _joined_memory(
    count: int, parts: Sequence[tuple[int, Ints, MemoryPrediction]]
) -> MemoryPrediction:
    def column(read: Callable[[MemoryPrediction], Any], dtype: Any = np.float64) -> Any:
        values = np.empty(count, dtype)
        for _, rows, held in parts:
            values[rows] = read(held)
        return values

    def columns(read: Callable[[MemoryPrediction], Mapping[str, Floats]]) -> OnDemand:
        def made() -> dict[str, Floats]:
            names = tuple(read(parts[0][2]))
            return {name: column(lambda held, n=name: read(held)[n]) for name in names}  # type: ignore[misc]

        return OnDemand(made)

    group = np.empty(count, np.int64)
    for number, rows, _ in parts:
        group[rows] = number
    return MemoryPrediction(
        allocated_bytes=column(lambda held: held.allocated_bytes),
        reserved_bytes=column(lambda held: held.reserved_bytes),
        total_bytes=column(lambda held: held.total_bytes),
        peak_stage=column(lambda held: held.peak_stage, np.int64),
        peak_phase=column(lambda held: held.peak_phase, np.int64),
        categories=columns(lambda held: held.categories),
        phases=columns(lambda held: held.phases),
        host_bytes=column(lambda held: held.host_bytes),
        nvme_bytes=column(lambda held: held.nvme_bytes),
        node_group=group,
    )
