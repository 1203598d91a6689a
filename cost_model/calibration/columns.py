"""Coefficients of software as columns: looked up once for a set, not for every table."""

from functools import lru_cache

import numpy as np

from cost_model.calibration.coefficients import Coefficients, SoftwareCoefficients
from cost_model.plans import Floats, Ints, Software


class _Same:
    """A set of coefficients as a key: equal to itself alone."""

    def __init__(self, known: Coefficients):
        self.known = known

    def __hash__(self) -> int:
        return id(self.known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.known is self.known


@lru_cache(maxsize=16)
def _by_software(same: _Same) -> dict[str, Floats]:
    each = [same.known.of_software(s) for s in Software]
    return {
        name: np.array([getattr(one, name) for one in each], float)
        for name in SoftwareCoefficients.model_fields
    }


def software_column(known: Coefficients, name: str, software: Ints) -> Floats:
    """A coefficient of each row's software [rows]."""
    column: Floats = _by_software(_Same(known))[name].take(software)
    return column
