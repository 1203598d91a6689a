"""Distinct combinations of a few columns, so that a term is computed once for each of them."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_model.plans import Ints, PlanTable

_DENSE = 1 << 18
"""Largest range that is numbered through a table instead of by sorting."""

_FEW = 16


@dataclass(frozen=True)
class Groups:
    """Which distinct combination each row has."""

    first: Ints
    """A row that shows each combination [combinations]."""
    of_row: Ints
    """The combination of each row [rows]."""

    @property
    def count(self) -> int:
        """How many combinations there are."""
        return len(self.first)


def spread(values: npt.NDArray[Any], of_row: Ints) -> npt.NDArray[Any]:
    """Values of combinations as rows; one value that all share stays alone, and broadcasts."""
    if len(values) == 1 or (values == values[0]).all():
        return values[:1]
    return values.take(of_row)


def varying(table: PlanTable, names: Iterable[str]) -> frozenset[str]:
    """Those of the columns that do not hold one value alone."""
    found = ((name, getattr(table, name)) for name in names)
    return frozenset(name for name, column in found if (column != column[:1]).any())


def group_rows(
    table: PlanTable, names: Iterable[str], among: Container[str], *more: npt.NDArray[Any]
) -> Groups:
    """Groups the rows of a table by the named columns that are `among` those that vary, and by
    `more` columns."""
    columns = [getattr(table, name) for name in names if name in among]
    if not columns and not more:
        return Groups(np.zeros(min(len(table), 1), np.int64), np.zeros(len(table), np.int64))
    return group(*columns, *more)


def group(*columns: npt.NDArray[Any]) -> Groups:
    """Groups the rows of equal-length columns by their values."""
    length = len(columns[0])
    key = np.zeros(length, np.int64)
    size = 1
    for column in columns:
        code, distinct = _number(column, _FEW)
        if distinct == 1:
            continue
        if size > 1 and size * distinct > _DENSE:  # keeps the key small enough for a table
            key, size = _number(key)
        key = code if size == 1 else key * distinct + code
        size *= distinct
        if size > _DENSE:
            key, size = _number(key)
    of_row, count = _number(key)
    first = np.empty(count, np.int64)
    first[of_row[::-1]] = np.arange(length - 1, -1, -1)
    return Groups(first, of_row)


def _number(column: npt.NDArray[Any], sparse: int = 1) -> tuple[Ints, int]:
    """Numbers the distinct values of a column from 0; returns the numbers and how many.

    sparse: a range of so many values may be numbered with gaps, which is quicker.
    """
    if column.dtype == np.bool_:
        column = column.view(np.uint8)
    if column.dtype.kind in "iu":
        low = int(column.min())
        span = int(column.max()) - low + 1
        if span == 1:
            return np.zeros(len(column), np.int64), 1
        if span <= _DENSE:
            shifted = column - low if low else column
            if span <= sparse:
                return shifted.astype(np.int64, copy=False), span
            seen = np.zeros(span, np.bool_)
            seen[shifted] = True
            values = np.flatnonzero(seen)
            if len(values) == span:
                return shifted.astype(np.int64), span
            numbers = np.empty(span, np.int64)
            numbers[values] = np.arange(len(values))
            return numbers.take(shifted), len(values)
    elif column.min() == column.max():
        return np.zeros(len(column), np.int64), 1
    values, numbers = np.unique(column, return_inverse=True)
    return numbers.astype(np.int64), len(values)
