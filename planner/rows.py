"""Picks and joins rows of nested dataclasses of columns."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cost_model.plans import PlanTable, repeated

T = TypeVar("T")


def take(columns: T, rows: Any) -> T:
    """The rows of every array inside: of a table, a dataclass of columns or an array."""
    value: Any = columns
    picked: Any = value
    if isinstance(value, np.ndarray):
        picked = value[rows]
    elif isinstance(value, PlanTable):
        picked = value.take(rows)
    elif is_dataclass(value) and not isinstance(value, type):
        picked = type(value)(**{f.name: take(getattr(value, f.name), rows) for f in fields(value)})
    return picked  # type: ignore[no-any-return]


def join(parts: Sequence[T]) -> T:
    """All parts one below the other; they are of one shape."""
    first: Any = parts[0]
    joined: Any = first
    if len(parts) == 1:
        return parts[0]
    if isinstance(first, np.ndarray):
        joined = _stacked(parts)  # type: ignore[arg-type]
    elif is_dataclass(first) and not isinstance(first, type):
        joined = type(first)(
            **{f.name: join([getattr(p, f.name) for p in parts]) for f in fields(first)}
        )
    return joined  # type: ignore[no-any-return]


def _stacked(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Arrays one below the other; one value that all share stays alone (as in PlanTable)."""
    if not any(part.strides[0] for part in parts):
        some = [part for part in parts if len(part)]
        if some and all(part[0] == some[0][0] for part in some):
            return repeated(some[0][:1], sum(len(part) for part in some))
    return np.concatenate(parts)
