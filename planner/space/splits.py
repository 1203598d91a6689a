"""Uneven pipeline stages: how many layers the first and the last stage hold, by cost."""

from functools import lru_cache

import numpy as np

from cost_model.flops import forward_flops
from cost_model.plans import Ints, Software
from cost_model.specs import ModelSpec, TrainingSpec
from planner.rules import World

TAKES_SPLITS = (Software.DEEPSPEED_PIPELINE, Software.MEGATRON)
"""Software that can be told the layers of its first and last stage."""

EVEN = (0, 0)

REACH = 4
"""Layers by which an end may differ from the even share. A head of a very large vocabulary costs
about three layers of a small model."""


def head_in_layers(model: ModelSpec, training: TrainingSpec) -> float:
    """FLOPs of the head over those of a layer of mean size."""
    products, core = forward_flops(model, training)
    head = 2.0 * model.head_matmul_params * training.seq_len
    return head * model.layers / max(products + core - head, 1.0)


def slowest(layers: int, pp: int, first: int, last: int, head: float) -> float:
    """Cost of the slowest stage in layers, the head on the last one."""
    middle = -(-(layers - first - last) // (pp - 2)) if pp > 2 else 0
    return max(first, middle, last + head)


@lru_cache(maxsize=1024)
def by_cost(layers: int, pp: int, head: float) -> tuple[int, int] | None:
    """Layers of the first and the last stage that make the slowest stage the fastest.

    The stages between them hold equal shares, as Megatron wants it. Of equal ones the lightest
    first stage, which keeps the most micro-batches in flight. None where no split beats the even
    one, which has the remainder on the earlier stages.
    """
    share = round(layers / pp)
    even = max(-(-layers // pp), layers // pp + head)
    ends = range(max(1, share - REACH), min(layers, share + REACH) + 1)
    found = [
        (slowest(layers, pp, first, last, head), first, last)
        for first in ends
        for last in ends
        if (first + last == layers if pp == 2 else _shares(layers - first - last, pp - 2))
    ]
    cost, first, last = min(found, default=(even, 0, 0))
    if cost < even - 1e-9 or (layers % pp and found):
        return first, last
    return None


def _shares(rest: int, stages: int) -> bool:
    return rest >= stages and rest % stages == 0


def splits(world: World, software: Software, pp: int) -> tuple[tuple[int, int], ...]:
    """(first, last) layers that a pipeline of `pp` stages may have: even, and the best by cost."""
    if pp == 1 or software not in TAKES_SPLITS:
        return (EVEN,)
    head = head_in_layers(world.model, world.training)
    best = by_cost(world.model.layers, pp, round(head, 6))
    return (EVEN,) if best is None or best == EVEN else (EVEN, best)


def split_columns(
    world: World, software: Software, pp: Ints, split: Ints
) -> tuple[Ints, Ints, Ints]:
    """First layers, last layers, and 1 where the pipeline has a split of that number [plans]."""
    most = int(pp.max(initial=1))
    table = np.zeros((3, most + 1, int(split.max(initial=0)) + 1), np.int64)
    for stages in set(pp.tolist()):
        for number, (first, last) in enumerate(splits(world, software, stages)):
            if number < table.shape[2]:
                table[:, stages, number] = first, last, 1
    first, last, known = table[:, pp, split]
    return first, last, known
