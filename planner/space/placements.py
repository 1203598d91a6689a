"""Pipelines over groups of different nodes: how many stages and layers each group takes."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from cost_model.placement import Placement
from cost_model.plans import Ints, Software
from cost_model.specs import ClusterSpec
from planner.rules import World
from planner.space.splits import TAKES_SPLITS, head_in_layers

PLACED = 1
"""The value of the axis that stands for every placement of a layout."""

PAIR = 2
"""Groups up to which every number of layers is tried."""

NEAR = 2
"""Of three groups and more, layers by which a group may differ from its share by arithmetic."""

Division = tuple[int, int]
"""A placement and the layers of the last stage, 0 for those that its group divides evenly."""


def divisions(world: World, software: Software, pp: int, width: int, even: bool) -> list[Division]:
    """Every placement of `pp` stages of `width` GPUs on the groups of the cluster.

    even: only those in which every stage has the same number of layers.
    """
    groups, layers = world.cluster.groups, world.model.layers
    head = round(head_in_layers(world.model, world.training), 6)
    precision = world.training.matmul_precision or world.training.precision
    rates = tuple(group.node.gpu.peak_flops(precision) for group in groups)
    found: list[Division] = []
    for stages in _stages(groups, pp, width):
        if even or software == Software.MEGATRON_DEEPSPEED:
            if layers % pp == 0:
                equal = tuple((s, s * layers // pp) for s in stages)
                found.append((Placement.of(equal[:-1]), 0))
        elif software in TAKES_SPLITS:
            found += _uneven(stages, layers, head, rates)
    return found


def _stages(groups: tuple[ClusterSpec, ...], pp: int, width: int) -> list[tuple[int, ...]]:
    """Stages on each group, which fill nodes of it."""
    if not groups:
        return [()] if pp == 0 else []
    first, found = groups[0], []
    for count in range(1, min(pp, first.gpus // width) + 1):
        if count * width % first.node.gpus_per_node == 0:
            found += [(count, *rest) for rest in _stages(groups[1:], pp - count, width)]
    return found


@lru_cache(maxsize=4096)
def _uneven(
    stages: tuple[int, ...], layers: int, head: float, rates: tuple[float, ...]
) -> tuple[Division, ...]:
    found = []
    for held in _layers(stages, layers, rates):
        placement = Placement.of(zip(stages[:-1], held[:-1], strict=True))
        found += [(placement, last) for last in _last_stages(held[-1], stages[-1], head)]
    return tuple(found)


def _layers(
    stages: tuple[int, ...], layers: int, rates: tuple[float, ...]
) -> Iterator[tuple[int, ...]]:
    """Layers on each group: all of two groups; of more those near the shares by arithmetic."""
    if len(stages) <= PAIR:
        for first in range(stages[0], layers - stages[1] + 1):
            yield first, layers - first
        return
    power = np.array(stages) * np.array(rates)
    share = layers * power / power.sum()

    def rest(number: int, left: int) -> Iterator[tuple[int, ...]]:
        if number == len(stages) - 1:
            if left >= stages[-1]:
                yield (left,)
            return
        middle = round(share[number])
        for held in range(max(middle - NEAR, stages[number]), middle + NEAR + 1):
            for more in rest(number + 1, left - held):
                yield held, *more

    yield from rest(0, layers)


def _last_stages(layers: int, stages: int, head: float) -> list[int]:
    """Layers of the last stage, which has the head beside them: as the others, or by cost."""
    if stages == 1 or head < 0.5:
        return [0]

    def cost(last: int) -> tuple[float, int]:
        longest = -(-(layers - last) // (stages - 1))
        return max(float(longest), last + head), -last

    even = layers // stages
    options = [last for last in range(1, even + 1) if layers - last >= stages - 1]
    best = min(options, key=cost)
    return [0] if cost(best)[0] >= _slowest_even(layers, stages, head) else [0, best]


def _slowest_even(layers: int, stages: int, head: float) -> float:
    """Layers of the slowest of even stages, the head counted on the last."""
    return max(-(-layers // stages), layers // stages + head)


def placement_columns(
    world: World, software: Software, pp: Ints, width: Ints, even: bool
) -> tuple[Ints, Ints, Ints]:
    """The row, placement and layers of the last stage of every placement of every row."""
    rows, placements, last = [], [], []
    known: dict[tuple[int, int], list[Division]] = {}
    for row, key in enumerate(zip(pp.tolist(), width.tolist(), strict=True)):
        if key not in known:
            known[key] = divisions(world, software, *key, even)
        rows += [row] * len(known[key])
        placements += [int(placement) for placement, _ in known[key]]
        last += [layers for _, layers in known[key]]
    return np.array(rows, np.int64), np.array(placements, np.int64), np.array(last, np.int64)
