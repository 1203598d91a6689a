"""Scores of predictions, on figures small enough to work out by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.benchmarks.scores import Pairs, coverage, error_block, kendall_tau, realistic_block


def pairs(measured: list[float], predicted: list[float], half_width: float = 0.1) -> Pairs:
    m, p = np.array(measured), np.array(predicted)
    return Pairs(np.arange(len(m)), m, p, p * (1 - half_width), p * (1 + half_width))


def test_errors_are_fractions_of_the_measured_value() -> None:
    found = error_block(pairs([1.0, 2.0, 4.0], [1.1, 1.8, 4.0]))
    assert found["n"] == 3
    assert found["mape"] == pytest.approx((0.1 + 0.1 + 0.0) / 3)
    assert found["median_ape"] == pytest.approx(0.1)
    assert found["bias"] == pytest.approx(0.0)


def test_nothing_measured_has_no_error() -> None:
    assert error_block(pairs([], [])) == {"n": 0, "mape": None, "median_ape": None, "bias": None}


def test_tau_counts_concordant_pairs() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert kendall_tau(a, a) == 1.0
    assert kendall_tau(a, -a) == -1.0
    # One discordant pair of six: (5 - 1) / 6.
    assert kendall_tau(a, np.array([1.0, 2.0, 4.0, 3.0])) == pytest.approx(4 / 6)
    assert kendall_tau(a, np.ones(4)) == 0.0


def test_coverage_is_the_share_inside_the_interval() -> None:
    assert coverage(pairs([1.0, 1.0, 1.0, 1.0], [1.0, 1.05, 0.95, 1.5])) == 0.75


def test_realistic_sizes_are_scored_apart() -> None:
    rows = [
        SimpleNamespace(model=SimpleNamespace(params=p)) for p in (100e6, 500e6, 7e9, 70e9, 405e9)
    ]
    found = realistic_block(
        rows,  # type: ignore[arg-type]
        pairs([1.0] * 5, [9.0, 1.1, 0.9, 1.2, 1.0]),
    )
    assert found["n"] == 4
    assert found["mape"] == pytest.approx(0.1)
    assert found["within15"] == 0.75
