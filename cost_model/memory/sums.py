"""Sums of bytes over tables of distinct plans, so that each plan costs a few array operations.

What a plan takes has two sides: its work (layout, micro-batch, recompute) and how its states are
sharded. Each side has few distinct rows, and a byte count is a sum of bytes of one side and of
products of both (bytes per parameter times parameters). Terms are added up on the small tables;
only the result is spread over the plans.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cost_model.plans import Floats, Ints

_FEW = 2048
"""Plans up to which spreading values costs no more than looking whether they differ."""


def _plus(a: Floats | None, b: Floats | None) -> Floats | None:
    if a is None or b is None:
        return b if a is None else a
    total: Floats = a + b
    return total


@dataclass(frozen=True)
class Sum:
    """Bytes; what is None or not there is 0."""

    rates: Mapping[str, Floats] = field(default_factory=dict)
    """Bytes per unit of a quantity of the work, by its name [shardings]."""
    work: Floats | None = None
    """[works]"""
    sharding: Floats | None = None
    """[shardings]"""
    plans: Floats | None = None
    """[plans], for what is no sum of the others."""

    def __add__(self, other: "Sum") -> "Sum":
        rates = dict(self.rates)
        for name, rate in other.rates.items():
            rates[name] = rates[name] + rate if name in rates else rate
        return Sum(
            rates,
            _plus(self.work, other.work),
            _plus(self.sharding, other.sharding),
            _plus(self.plans, other.plans),
        )


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
        if of.work is not None and of.work.any():
            total = _spread(of.work, self.of_work)
        if of.sharding is not None and of.sharding.any():
            total = _added(total, _spread(of.sharding, self.of_sharding))
        for name, rate in of.rates.items():
            if rate.any():
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
    if len(of_row) > _FEW and (values == values[0]).all():
        return values[:1]
    return values.take(of_row)
