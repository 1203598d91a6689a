"""Figures of the software profiles as columns."""

from collections.abc import Callable

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients, SoftwareMemory
from cost_model.plans import Floats, Ints, Software

_NAMES = tuple(s.name.lower() for s in Software)


def by_software(
    coefficients: MemoryCoefficients,
    software: Ints,
    figure: Callable[[SoftwareMemory], float],
) -> Floats:
    """A figure of each row's software [rows]."""
    profiles = coefficients.software
    first = int(software[0]) if len(software) else 0
    if (software == first).all():
        return np.full(len(software), float(figure(coefficients.of(Software(first)))))
    values = np.array([float(figure(profiles[name])) for name in _NAMES])
    return values.take(software)
