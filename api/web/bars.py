"""Stacked bars as the pages draw them."""

from collections.abc import Mapping
from dataclasses import dataclass

WIDTH = 640.0
"""Of a bar, in the units of its drawing."""

COLOURS = 12
"""Colours in the style sheet, by number."""

WORTH_DRAWING = 0.002
"""Share of the whole below which a part is left out."""


@dataclass(frozen=True)
class Segment:
    """One part of a bar."""

    name: str
    value: float
    share: float
    x: float
    width: float
    colour: int


def stacked(parts: Mapping[str, float], whole: float | None = None) -> list[Segment]:
    """Parts side by side; `whole` is what fills the width, their sum where it is not given.

    Parts keep their colour from bar to bar: it follows from their place in the mapping.
    """
    total = sum(parts.values())
    full = max(total, whole or 0.0)
    segments: list[Segment] = []
    x = 0.0
    for number, (name, value) in enumerate(parts.items()):
        if full <= 0 or value < WORTH_DRAWING * full:
            continue
        width = WIDTH * value / full
        segments.append(Segment(name, value, value / total, x, width, number % COLOURS))
        x += width
    return segments
