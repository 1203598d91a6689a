"""The base of every spec: immutable, and closed to unknown fields."""

from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

MOST = 1e9
"""Largest quantity of a description, in its unit; with LEAST it keeps every product finite."""

LEAST = 1e-6
"""Smallest quantity that is not nothing."""

NO_NUMBERS = ("nan", "inf", "-inf")
"""How JSON tells of floats that it has no number for; fields of measurements may hold them."""

MOST_COUNT = 2**20
"""Largest number of things of a kind: nodes, ranks, cores."""


class Frozen(BaseModel):
    """A value object. Unknown fields are refused, so that a typo never passes in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _said_in_its_own_type(cls, value: Any, info: ValidationInfo) -> Any:
        """No number from true or "8", no switch from "no": each hides a mistake of the sender."""
        kind = type(value)
        if kind is int or kind is float:  # most values: nothing to look up
            return value
        wanted = _plain_types(cls).get(info.field_name or "")
        for one in value if wanted and kind in (list, tuple) else (value,):
            if wanted is None or not isinstance(one, bool | str):
                continue
            if float in wanted and one in NO_NUMBERS:  # refused where the field is finite
                continue
            if bool not in wanted:
                noun = "a number" if float in wanted else "a number (an integer)"
                raise ValueError(f"give {noun}, neither quoted nor true or false")
            if isinstance(one, str):
                raise ValueError("give true or false, without quotes")
        return value


@cache
def _plain_types(model: type[BaseModel]) -> dict[str, frozenset[type]]:
    """The types of the fields that hold numbers or switches and nothing else."""
    found = {name: frozenset(_leaves(f.annotation)) for name, f in model.model_fields.items()}
    plain = {bool, int, float}
    return {name: types for name, types in found.items() if types and types <= plain}


def _leaves(annotation: Any) -> list[Any]:
    """The types inside an annotation such as `int | None` or `tuple[int, ...]`."""
    arguments = [a for a in get_args(annotation) if a not in (None, type(None), ...)]
    if not arguments:
        return [annotation]
    if not isinstance(annotation, type) and type(annotation).__name__ == "_AnnotatedAlias":
        return _leaves(arguments[0])
    return [leaf for a in arguments for leaf in _leaves(a)]
