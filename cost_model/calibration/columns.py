"""Coefficients of software as columns: looked up once for a set, not for every table."""

from functools import lru_cache

import numpy as np

from cost_model.calibration.coefficients import Coefficients, SoftwareCoefficients
from cost_model.calibration.same import Same
from cost_model.plans import Floats, Ints, Software


@lru_cache(maxsize=16)
def _by_software(same: Same[Coefficients]) -> dict[str, Floats]:
    each = [same.known.of_software(s) for s in Software]
    return {
        name: np.array([getattr(one, name) for one in each], float)
        for name in SoftwareCoefficients.model_fields
    }


def software_column(known: Coefficients, name: str, software: Ints) -> Floats:
    """A coefficient of each row's software [rows]."""
    column: Floats = _by_software(Same(known))[name].take(software)
    return column
