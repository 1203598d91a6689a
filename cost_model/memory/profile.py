"""Figures of the software profiles as columns: looked up once for a set, not for every table."""

from functools import lru_cache

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients, SoftwareMemory
from cost_model.calibration.same import Same
from cost_model.memory.precision import gradient_bytes
from cost_model.plans import Floats, Ints, Software
from cost_model.specs import TrainingSpec


@lru_cache(maxsize=16)
def _figures(same: Same[MemoryCoefficients]) -> dict[str, Floats]:
    each = [same.known.of(s) for s in Software]
    names = set(SoftwareMemory.model_fields) - {"gradient_bytes"}  # is one by precision
    return {name: np.array([getattr(one, name) for one in each], float) for name in names}


def by_software(coefficients: MemoryCoefficients, software: Ints, figure: str) -> Floats:
    """A figure of each row's software, by its name in SoftwareMemory [rows]."""
    column: Floats = _figures(Same(coefficients))[figure].take(software)
    return column


@lru_cache(maxsize=16)
def _gradients(same: Same[MemoryCoefficients], training: Same[TrainingSpec]) -> Floats:
    profiles = (same.known.of(s).gradient_bytes for s in Software)
    return np.array([gradient_bytes(sizes, training.known) for sizes in profiles])


def gradient_column(
    coefficients: MemoryCoefficients, training: TrainingSpec, software: Ints
) -> Floats:
    """Bytes of an accumulated gradient element under each row's software [rows]."""
    column: Floats = _gradients(Same(coefficients), Same(training)).take(software)
    return column
