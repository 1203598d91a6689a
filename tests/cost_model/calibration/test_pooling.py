"""Two series of trials at once teach what one series of all of them does."""

import numpy as np
import pytest

from cost_model.calibration.cluster import FACTORS, ClusterCalibration, later, uncalibrated
from cost_model.calibration.cluster_fit import fit
from cost_model.calibration.observations import Observations
from cost_model.calibration.pooling import pooled
from tests.cost_model.calibration.test_cluster_fit import (
    LOCAL,
    TRIED,
    TRUE,
    error,
    measured,
    small,
    truth,
)

SEEN = measured(TRIED, small(), truth(**TRUE))
PRIOR = uncalibrated(LOCAL)


def after(prior: ClusterCalibration, *numbers: int) -> ClusterCalibration:
    seen = Observations(tuple(SEEN[n] for n in numbers))
    return fit(prior, LOCAL, seen, n_trials=len(numbers))


def test_two_campaigns_at_once_teach_as_much_as_one_with_all_their_trials() -> None:
    one, other = after(PRIOR, 0, 2, 4), after(PRIOR, 1, 3, 5)
    all_of_them = after(PRIOR, *range(6))
    both = pooled(one, PRIOR, other)
    assert both.n_trials == 6
    # The normal approximation is taken at two modes instead of one.
    apart = np.array(both.log_factors) - np.array(all_of_them.log_factors)
    assert np.all(np.abs(apart) < np.array([*all_of_them.deviations.values()]))
    ratio = np.array([both.deviations[n] / all_of_them.deviations[n] for n in FACTORS])
    assert np.all((ratio > 0.6) & (ratio < 1.6))
    known = truth(**TRUE)
    alone = max(error(one, small(), known), error(other, small(), known))
    assert error(both, small(), known) < alone


def test_the_order_does_not_matter_and_rounds_add_up_to_their_campaign() -> None:
    one, other, first_round = after(PRIOR, 0, 2), after(PRIOR, 1, 3), after(PRIOR, 1)
    there, back = pooled(one, PRIOR, other), pooled(other, PRIOR, one)
    in_rounds = pooled(pooled(one, PRIOR, first_round), first_round, other)
    for same in (back, in_rounds):
        assert same.log_factors == pytest.approx(there.log_factors, abs=1e-9)
        assert np.array(same.covariance) == pytest.approx(np.array(there.covariance), abs=1e-9)
        assert same.n_trials == 4


def test_without_new_trials_nothing_changes_and_alone_a_campaign_is_what_it_learned() -> None:
    one = after(PRIOR, 0, 1)
    assert pooled(one, later(one), later(one)) == one
    prior = later(one)
    other = after(prior, 2, 3)
    alone = pooled(prior, prior, other)
    assert alone.log_factors == pytest.approx(other.log_factors, abs=1e-9)
    assert alone.n_trials == other.n_trials == 4


def test_what_was_forgotten_meanwhile_does_not_come_back_as_nonsense() -> None:
    one = after(PRIOR, 0, 1, 2, 3)
    vague = PRIOR.model_copy(update={"covariance": tuple(map(tuple, 1e6 * np.eye(len(FACTORS))))})
    more = after(one, 4).model_copy(update={"covariance": one.covariance})
    weaker = more.model_copy(update={"covariance": PRIOR.covariance})
    assert pooled(vague, one, weaker) == weaker
