"""Small predicates over columns that several rules share."""

from collections.abc import Iterable

import numpy as np

from cost_model.placement import Placed, Placement
from cost_model.plans import Bools, Ints, PlanTable, Software

DEEPSPEED_ENGINE = (Software.DEEPSPEED, Software.DEEPSPEED_PIPELINE, Software.MEGATRON_DEEPSPEED)
MEGATRON_LAYERS = (Software.MEGATRON_DEEPSPEED, Software.MEGATRON)


def is_software(table: PlanTable, *software: Software) -> Bools:
    """Whether each plan runs on one of these."""
    picked: Bools = table.software == int(software[0])
    for other in software[1:]:
        picked = picked | (table.software == int(other))
    return picked


def largest_stage(table: PlanTable, layers: int) -> Ints:
    """Layers of the largest stage, as far as the ends are not given [plans]."""
    most: Ints = -(-layers // table.pp)
    if not table.placement.any():
        return most
    groups = max(len(Placement(value).parts) for value in set(table.placement.tolist())) + 1
    held = Placed.of(table.placement, table.pp, layers, groups)
    each = [-(-n // np.maximum(s, 1)) for s, n in zip(held.stages, held.layers, strict=True)]
    return np.where(table.placement > 0, np.max(each, axis=0), most)


def divides(parts: Ints, sizes: Iterable[int]) -> Bools:
    """Whether `parts` divides every one of `sizes`."""
    legal = np.ones(parts.shape, np.bool_)
    for size in sizes:
        legal &= size % parts == 0
    return legal


def not_dividing(parts: int, sizes: Iterable[int]) -> list[int]:
    """Those of `sizes` that `parts` does not divide."""
    return [size for size in sizes if size % parts]


def common_divisors(sizes: Iterable[int]) -> list[int]:
    """Degrees that divide every size: what to offer instead."""
    common = int(np.gcd.reduce([*sizes, 0]))
    return [d for d in range(1, min(common, 128) + 1) if common % d == 0]


def spoken(values: Iterable[object]) -> str:
    """A list in words: '1, 2 or 4'."""
    texts = [str(v) for v in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
