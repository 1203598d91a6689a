"""Bytes added up on small tables are those of each plan; columns on demand are computed once."""

import numpy as np

from cost_model.memory.on_demand import OnDemand
from cost_model.memory.sums import Plans, Sum


def test_a_sum_is_rates_times_quantities_and_bytes_of_either_side() -> None:
    """Three plans over two works and two shardings, by hand."""
    quantities = {"dense": np.array([10.0, 20.0]), "matrix": np.array([1.0, 2.0])}
    plans = Plans(quantities, np.array([0, 1, 1]), np.array([0, 0, 1]))
    held = Sum({"dense": np.array([2.0, 3.0])}, work=np.array([5.0, 7.0]))
    more = Sum({"dense": np.array([1.0, 0.0]), "matrix": np.array([0.0, 100.0])})
    total = plans.bytes(held + more + Sum(sharding=np.array([0.5, 0.25])))
    assert total.tolist() == [3 * 10 + 5 + 0.5, 3 * 20 + 7 + 0.5, 3 * 20 + 200 + 7 + 0.25]


def test_a_sum_of_nothing_is_zero_for_every_plan() -> None:
    plans = Plans({}, np.zeros(4, np.int64), np.zeros(4, np.int64))
    assert plans.bytes(Sum()).tolist() == [0, 0, 0, 0]


def test_reading_a_sum_twice_gives_the_same() -> None:
    own = np.array([1.0, 2.0])
    plans = Plans({"dense": own}, np.array([0, 1]), np.array([0, 1]))
    one = Sum({"dense": np.array([2.0, 4.0])}, plans=np.array([1.0, 1.0]))
    assert plans.bytes(one).tolist() == plans.bytes(one).tolist() == [3, 9]
    assert own.tolist() == [1, 2]


def test_columns_on_demand_are_computed_once_and_only_when_read() -> None:
    asked = []

    def compute() -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        asked.append(1)
        return {"a": np.ones(2)}

    columns = OnDemand(compute)
    assert not asked
    assert list(columns) == ["a"]
    assert columns["a"].tolist() == [1, 1]
    assert len(columns) == len(asked) == 1
