"""Layers of equal shape are counted, not looped over."""

from collections.abc import Sequence

from cost_model.specs.model import Layer


def kinds_of(layers: Sequence[Layer]) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """The distinct layers in order of appearance, and the kind of each layer."""
    index: dict[Layer, int] = {}
    pattern = tuple(index.setdefault(one, len(index)) for one in layers)
    return tuple(index), pattern
