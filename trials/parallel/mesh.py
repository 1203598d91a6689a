"""Which ranks work together on what: one process group for each axis of a plan.

Ranks are laid out with the tensor-parallel axis fastest, so that it stays inside a node, then
sequence and context parallelism, then data, then pipeline: the order of Megatron-LM
(arXiv 2104.04473, section 3) and of DeepSpeed's PipeModelDataParallelTopology.
"""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch.distributed as dist

from cost_model.plans import Plan

AXES = ("pp", "dp", "cp", "sp", "tp")
"""Slowest axis first."""


@dataclass(frozen=True)
class Axis:
    """This rank's place on one axis. `group` is None where the axis has a single rank."""

    size: int = 1
    rank: int = 0
    group: Any = None
    ranks: tuple[int, ...] = (0,)
    """Global ranks of the group, in the order of the axis."""


@dataclass(frozen=True)
class Mesh:
    """This rank's place on every axis."""

    pp: Axis = field(default_factory=Axis)
    dp: Axis = field(default_factory=Axis)
    cp: Axis = field(default_factory=Axis)
    sp: Axis = field(default_factory=Axis)
    tp: Axis = field(default_factory=Axis)
    zero: Axis = field(default_factory=Axis)
    """dp x cp x sp: the ranks that hold the same parameters, over which ZeRO shards."""


def coordinates(rank: int, sizes: dict[str, int]) -> dict[str, int]:
    """The place of a rank on each axis; `sizes` in the order of AXES."""
    place = {}
    for name in reversed(list(sizes)):
        rank, place[name] = divmod(rank, sizes[name])
    return place


def groups_along(axes: tuple[str, ...], sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """All groups of ranks that differ only on the given axes, members in rank order."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in range(prod(sizes.values())):
        place = coordinates(rank, sizes)
        key = tuple(place[name] for name in sizes if name not in axes)
        groups.setdefault(key, []).append(rank)
    return [tuple(members) for members in groups.values()]


def build_mesh(plan: Plan, rank: int) -> Mesh:
    """Makes the process groups of a plan. Every rank calls it, in the same order.

    The process group of the world must exist and have the plan's world size; raises ValueError
    otherwise.
    """
    sizes = {name: int(getattr(plan, name)) for name in AXES}
    world = dist.get_world_size()
    if world != plan.world_size:
        raise ValueError(f"the plan needs {plan.world_size} ranks; the process group has {world}")
    axes = {name: _axis((name,), sizes, rank) for name in AXES}
    return Mesh(**axes, zero=_axis(("dp", "cp", "sp"), sizes, rank))


def _axis(names: tuple[str, ...], sizes: dict[str, int], rank: int) -> Axis:
    size = prod(sizes[name] for name in names)
    if size == 1:
        return Axis(ranks=(rank,))
    whole = size == prod(sizes.values())
    mine: tuple[int, ...] = ()
    group: Any = None
    for members in groups_along(names, sizes):
        made = dist.group.WORLD if whole else dist.new_group(list(members))
        if rank in members:
            mine, group = members, made
    return Axis(size=size, rank=mine.index(rank), group=group, ranks=mine)
