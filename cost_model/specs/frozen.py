"""The base of every spec: immutable, and closed to unknown fields."""

from pydantic import BaseModel, ConfigDict

MOST = 1e9
"""Largest quantity of a description, in its unit; with LEAST it keeps every product finite."""

LEAST = 1e-6
"""Smallest quantity that is not nothing."""

MOST_COUNT = 2**20
"""Largest number of things of a kind: nodes, ranks, cores."""


class Frozen(BaseModel):
    """A value object. Unknown fields are refused, so that a typo never passes in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
