"""Layers of equal shape are counted, not looped over."""

from collections.abc import Sequence

from cost_model.specs.model import Layer


def kinds_of(layers: Sequence[Layer]) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """The distinct layers in order of appearance, and the kind of each layer."""
    index: dict[Layer, int] = {}
    known: dict[int, int] = {}  # by identity: the same object is hashed once
    pattern = []
    for one in layers:
        if id(one) not in known:
            known[id(one)] = index.setdefault(one, len(index))
        pattern.append(known[id(one)])
    return tuple(index), tuple(pattern)
