"""Figures of the software profiles as columns."""

from collections.abc import Callable

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients, SoftwareMemory
from cost_model.plans import Floats, Ints, Software


def by_software(
    coefficients: MemoryCoefficients,
    software: Ints,
    figure: Callable[[SoftwareMemory], float],
) -> Floats:
    """A figure of each row's software [rows]."""
    values = np.array([float(figure(coefficients.of(s))) for s in Software])
    return values.take(software)
