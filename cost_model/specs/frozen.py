"""The base of every spec: immutable, and closed to unknown fields."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value object. Unknown fields are refused, so that a typo never passes in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")
