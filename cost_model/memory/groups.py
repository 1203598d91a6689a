"""Distinct combinations of a few columns, so that a term is computed once for each of them."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_model.plans import Ints, PlanTable

_TABLE = 1 << 18
"""Widest range that is grouped by a table of all its values."""

_BITS = 16
"""Of the places in the table: a few hundred distinct rows rarely meet in so many."""

_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio, odd: spreads neighbouring integers furthest (Knuth)."""

_WIDE = 1 << 20
"""Range of a column from which on its values are counted rather than taken as they are."""

_WIDEST = 1 << 62
"""Range of the combined integer."""

_FEW_ROWS = 128

_NONE = np.zeros(1, np.int64)

_Digit = tuple[Ints, int]
"""Integers from 0, and below which they all are."""


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
    return table.varying.intersection(names)


def group_rows(
    table: PlanTable, names: Iterable[str], among: Container[str], *more: npt.NDArray[Any]
) -> Groups:
    """Groups the rows of a table by the named columns that are `among` those that vary, and by
    `more` columns."""
    picked = [name for name in names if name in among]
    if not picked and not more:
        return Groups(np.zeros(min(len(table), 1), np.int64), np.zeros(len(table), np.int64))
    if len(table) <= _FEW_ROWS:
        return _group_few((*(getattr(table, name) for name in picked), *more))
    return _combined((*(_digit_of(table, name) for name in picked), *map(_digit, more)))


def group(*columns: npt.NDArray[Any]) -> Groups:
    """Groups the rows of equal-length columns by their values.

    The columns are the digits of one integer: where its range would pass 64 bits, what there is so
    far is numbered anew.
    """
    if len(columns[0]) <= _FEW_ROWS:
        return _group_few(columns)
    return _combined(tuple(map(_digit, columns)))


def _combined(digits: tuple[_Digit, ...]) -> Groups:
    length = len(digits[0][0])
    key, size = _NONE, 1
    for digit, span in digits:
        if span == 1:
            continue
        if size > _WIDEST // span:
            groups = _equal(key)
            key, size = groups.of_row, groups.count
            if size > _WIDEST // span:
                more = _equal(digit)
                key = key + more.of_row * size
                size *= more.count
                continue
        key = digit if size == 1 else key + digit * size
        size *= span
    if size == 1:
        return Groups(np.zeros(min(length, 1), np.int64), np.zeros(length, np.int64))
    return _equal(key, size)


def _group_few(columns: tuple[npt.NDArray[Any], ...]) -> Groups:
    """The same for few rows, where a dictionary is quicker than passes over arrays."""
    keys = list(zip(*(c.tolist() for c in columns), strict=True))
    first = {
        key: row for row, key in zip(range(len(keys) - 1, -1, -1), reversed(keys), strict=True)
    }
    numbers = {key: number for number, key in enumerate(first)}
    of_row = [numbers[key] for key in keys]
    return Groups(np.array(list(first.values()), np.int64), np.array(of_row, np.int64))


def _digit_of(table: PlanTable, name: str) -> _Digit:
    """The digit of a column of a table, which several groupings of the same table need."""
    known = table.digits.get(name)
    if known is None:
        known = table.digits[name] = _digit(getattr(table, name))
    return known


def _digit(column: npt.NDArray[Any]) -> _Digit:
    """A column as integers from 0, and below which they all are."""
    if not len(column) or not column.strides[0]:
        return column, 1
    if column.dtype == np.bool_:
        return column.astype(np.int64), 2
    if column.dtype.kind == "f":
        column = (column + 0.0).view(np.int64)  # 0 has one sign
    low = int(np.minimum.reduce(column))
    span = int(np.maximum.reduce(column)) - low + 1
    if 1 < span <= _WIDE:
        return (column - low if low else column), span
    if span > 1:
        groups = _equal(column)
        return groups.of_row, groups.count
    return column, 1


def _equal(key: Ints, size: int = 0) -> Groups:
    """Groups equal integers.

    size: they are known to be from 0 to below it; 0 where they are not.
    """
    if len(key) < 2:
        return Groups(np.zeros(len(key), np.int64), np.zeros(len(key), np.int64))
    begins = np.flatnonzero(key[1:] != key[:-1])
    if len(begins) > len(key) // 4:
        return _numbered(_representatives(key, size))
    # neighbours are equal: group the runs
    begins = np.concatenate([np.zeros(1, np.int64), begins + 1])
    runs = _numbered(_representatives(key.take(begins), size))
    lengths = np.diff(begins, append=len(key))
    return Groups(begins.take(runs.first), np.repeat(runs.of_row, lengths))


def _representatives(key: Ints, size: int) -> Ints:
    """For each row one that has the same integer: all equal ones have the same [rows].

    Each row writes itself into a table, and the last one stays. Where the range is too wide for a
    table, the place is a multiplicative hash (Knuth, The Art of Computer Programming 3, section
    6.4), and rows that find another integer's row there are tried again with another multiplier.
    """
    rows = np.arange(len(key))
    if 0 < size <= _TABLE:
        place = np.empty(size, np.int64)
        place[key] = rows
        return place.take(key)
    same = np.empty(len(key), np.int64)
    place = np.empty(1 << _BITS, np.int64)
    todo, left, factor = rows, key, _GOLDEN
    while len(todo):
        spread_out = left.view(np.uint64) * np.uint64(factor)
        at = (spread_out >> np.uint64(64 - _BITS)).view(np.int64)
        place[at] = todo
        found = place.take(at)
        same[todo] = found
        wrong = np.flatnonzero(key.take(found) != left)
        todo, left = todo.take(wrong), left.take(wrong)
        factor = (factor * _GOLDEN) % (1 << 64) | 1
    return same


def _numbered(same: Ints) -> Groups:
    """Numbers representatives in order."""
    seen = np.zeros(len(same), np.bool_)
    seen[same] = True
    first = np.flatnonzero(seen)
    number = np.empty(len(same), np.int64)
    number[first] = np.arange(len(first))
    return Groups(first, number.take(same))
