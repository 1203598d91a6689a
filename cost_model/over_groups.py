"""Step time of plans whose pipeline stages lie on groups of different nodes.

Each group is predicted on its own nodes, with its own stages alone, by the formulas of any other
plan; what a step takes then follows from the slowest stage of all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cost_model.memory.over_groups import EVEN, placed
from cost_model.placement import Placed
from cost_model.plans import Floats, Ints, PlanTable
from cost_model.prediction import STEP_PARTS, StepPrediction
from cost_model.resident import Passing
from cost_model.specs import ClusterSpec


@dataclass(frozen=True)
class GroupStep:
    """The step of one group's stages, as if there were no others."""

    step: StepPrediction
    passing: Passing | None
    """None where all stages are looked at."""


OneStep = Callable[[ClusterSpec, PlanTable, int | None], GroupStep]
"""The step on one group of nodes: of the stages of that group, or of all."""


def step_over_groups(
    cluster: ClusterSpec, layers: int, table: PlanTable, one: OneStep
) -> StepPrediction:
    """Step time where groups of nodes differ [plans].

    Every stage sees every micro-batch, so the slowest stage sets the pace (it may be in either
    group), the others of all groups are waited for once, and groups reduce their gradients and
    update their parameters at the same time, each over its own network.
    """
    on_groups = placed(cluster, layers, table)
    plain = cluster.model_copy(update={"groups": ()})
    if not on_groups.any():
        return one(plain, replace(table, placement=np.zeros_like(table.placement)), None).step
    parts: list[tuple[Ints, StepPrediction]] = []
    rows = np.flatnonzero(~on_groups)
    if len(rows):
        even = replace(table.take(rows), placement=np.zeros(len(rows), np.int64))
        parts.append((rows, one(plain, even, None).step))
    rows = np.flatnonzero(on_groups)
    few = table.take(rows)
    found = [one(group, few, number) for number, group in enumerate(cluster.groups)]
    peaks = [group.step.model_flops / group.step.mfu / group.step.seconds for group in found]
    shares = Placed.of(few.placement, few.pp, layers, len(found)).stages
    peak = sum((p * s / few.pp for p, s in zip(peaks, shares, strict=True)), np.zeros(len(few)))
    parts.append((rows, _slowest(few, found, peak)))
    return _joined_steps(len(table), parts)


def _slowest(table: PlanTable, found: Sequence[GroupStep], peak: Floats) -> StepPrediction:
    """The step of the group that all others wait for. peak: FLOP/s of all GPUs [plans]."""
    passing = [group.passing for group in found if group.passing is not None]
    through = np.array([one.through for one in passing])
    elsewhere = (through.sum(axis=0) - through) / table.vpp
    own = np.array([group.step.parts["pp_comm"] for group in found])
    # where stages are smaller than a node, all their hand-overs but those between groups are near
    far = np.max([one.far_hop for one in passing], axis=0) * table.grad_accum
    hops = np.maximum(own.max(axis=0), far)
    seconds = np.array([group.step.seconds for group in found])
    seconds = seconds + elsewhere + (hops - own)
    last = seconds.argmax(axis=0)
    row = np.arange(len(table))

    def of(values: Sequence[Floats]) -> Floats:
        picked: Floats = np.array(values)[last, row]
        return picked

    parts = {name: of([group.step.parts[name] for group in found]) for name in STEP_PARTS}
    parts["bubble"] = parts["bubble"] + elsewhere[last, row]
    parts["pp_comm"] = hops
    total = seconds[last, row]
    flops = found[0].step.model_flops
    ratio = of([group.step.hfu / group.step.mfu for group in found])
    mfu = flops / (total * peak)
    traffic = {
        name: of([group.step.traffic_bytes[name] for group in found])
        for name in found[0].step.traffic_bytes
    }
    return StepPrediction(total, parts, flops, mfu, mfu * ratio, traffic, node_group=last)


def _joined_steps(count: int, parts: Sequence[tuple[Ints, StepPrediction]]) -> StepPrediction:
    def column(read: Callable[[StepPrediction], Any]) -> Any:
        values = np.empty(count)
        for rows, step in parts:
            values[rows] = read(step)
        return values

    def columns(read: Callable[[StepPrediction], Mapping[str, Floats]]) -> dict[str, Floats]:
        names = tuple(read(parts[0][1]))
        return {name: column(lambda step, n=name: read(step)[n]) for name in names}  # type: ignore[misc]

    group = np.full(count, EVEN)
    for rows, step in parts:
        if step.node_group is not None:
            group[rows] = step.node_group
    return StepPrediction(
        seconds=column(lambda step: step.seconds),
        parts=columns(lambda step: step.parts),
        model_flops=column(lambda step: step.model_flops),
        mfu=column(lambda step: step.mfu),
        hfu=column(lambda step: step.hfu),
        traffic_bytes=columns(lambda step: step.traffic_bytes),
        node_group=group,
    )
