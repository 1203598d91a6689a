"""Sums of bytes over tables of distinct plans, so that each plan costs a few array operations.

What a plan takes has two sides: its work (layout, micro-batch, recompute) and how its states are
sharded. Each side has few distinct rows, and a byte count is a sum of bytes of one side and of
products of both (bytes per parameter times parameters). Terms are added up on the small tables;
only the result is spread over the plans.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cost_model.plans import Floats, Ints

_FEW = 2048
"""Plans up to which spreading values costs no more than looking whether they differ."""


@dataclass(slots=True, eq=False)
class Sum:
    """Bytes; what is None or not there is 0. Never changed once made: not frozen, since many are
    made for every table."""

    rates: Mapping[str, Floats] = field(default_factory=dict)
    """Bytes per unit of a quantity of the work, by its name [shardings]."""
    work: Floats | None = None
    """[works]"""
    sharding: Floats | None = None
    """[shardings]"""
    plans: Floats | None = None
    """[plans], for what is no sum of the others."""

    def __add__(self, other: "Sum") -> "Sum":
        return total((self, other))


def total(sums: Iterable[Sum]) -> Sum:
    """All of them together, added up in their order."""
    rates: dict[str, Floats] = {}
    work: Floats | None = None
    sharding: Floats | None = None
    plans: Floats | None = None
    for one in sums:
        for name, rate in one.rates.items():
            rates[name] = rates[name] + rate if name in rates else rate
        if one.work is not None:
            work = one.work if work is None else work + one.work
        if one.sharding is not None:
            sharding = one.sharding if sharding is None else sharding + one.sharding
        if one.plans is not None:
            plans = one.plans if plans is None else plans + one.plans
    return Sum(rates, work, sharding, plans)


class Plans:
    """Which work and which sharding each plan has."""

    def __init__(self, quantities: Mapping[str, Floats], of_work: Ints, of_sharding: Ints):
        """quantities: by name, one value for each distinct work."""
        self.of_work, self.of_sharding = of_work, of_sharding
        self._works = quantities
        self._picked: dict[str, Floats] = {}

    def quantity(self, name: str) -> Floats:
        """A quantity of the work [plans], or one value that all share."""
        if name not in self._picked:
            self._picked[name] = _spread(self._works[name], self.of_work)
        return self._picked[name]

    def replace(self, name: str, values: Floats) -> None:
        """Sets a quantity [plans]."""
        self._picked[name] = values

    def sharding(self, values: Floats) -> Floats:
        """A figure of the sharding [plans], or one value that all share."""
        return _spread(values, self.of_sharding)

    def bytes(self, of: Sum) -> Floats:
        """The value of a sum [plans]."""
        total: Floats | None = None
        if of.work is not None and np.logical_or.reduce(of.work):
            total = _spread(of.work, self.of_work)
        if of.sharding is not None and np.logical_or.reduce(of.sharding):
            total = _added(total, _spread(of.sharding, self.of_sharding))
        for name, rate in of.rates.items():
            if np.logical_or.reduce(rate):
                total = _added(total, self._product(rate, self.quantity(name)))
        if of.plans is not None:
            total = of.plans.copy() if total is None else _added(total, of.plans)
        if total is None:
            return np.zeros(len(self.of_work))
        return total if len(total) > 1 else np.repeat(total, len(self.of_work))

    def _product(self, rate: Floats, quantity: Floats) -> Floats:
        value = _spread(rate, self.of_sharding)
        if len(value) < len(quantity):
            return value * quantity
        if len(value) > 1:  # an array of our own
            value *= quantity
            return value
        return value * quantity


def _added(total: Floats | None, value: Floats) -> Floats:
    """The sum, in place where one of the two is a whole array that nobody else holds."""
    if total is None:
        return value
    if len(total) >= len(value) and len(total) > 1:
        total += value
        return total
    more: Floats = total + value
    return more


def _spread(values: Floats, of_row: Ints) -> Floats:
    """Values of distinct rows as plans; of many plans one value that all share stays alone."""
    if len(values) == 1:
        return values
    if len(of_row) > _FEW:
        first = values[0]
        if first == values[-1] and np.logical_and.reduce(values == first):
            return values[:1]
    return values.take(of_row)
