"""What is kept of a kind of cluster after a round of a campaign, alone or beside others."""

import pytest

from api.calibrated import learned
from cost_model.calibration.cluster import FACTORS, ClusterCalibration, later, uncalibrated
from cost_model.catalogue import cluster

PRIOR = uncalibrated(cluster("dgx-a100-80g"))


def _after(before: ClusterCalibration, trials: int, gemm: float) -> ClusterCalibration:
    """Surer by half, at another efficiency of matrix products."""
    logs = [gemm if name == "gemm" else 0.0 for name in FACTORS]
    halved = [[0.5 * v for v in row] for row in before.covariance]
    update = {"log_factors": logs, "covariance": halved, "n_trials": before.n_trials + trials}
    return ClusterCalibration.model_validate(before.model_dump() | update)


def _round(
    known: ClusterCalibration | None,
    prior: ClusterCalibration,
    before: ClusterCalibration | None,
    after: ClusterCalibration,
    kept: ClusterCalibration | None,
) -> ClusterCalibration:
    """What is kept in the end."""
    state = {"prior": prior.model_dump(), "calibration": after.model_dump()}
    earlier = None if before is None else {"calibration": before.model_dump()}
    new = learned(None if known is None else known.model_dump(), earlier, state)
    assert new is not None
    return new.beside(None if kept is None else kept.model_dump())


def test_a_campaign_alone_is_kept_as_it_learned() -> None:
    first = _after(PRIOR, 2, 0.1)
    assert _round(None, PRIOR, None, first, None) == first
    second = _after(first, 2, 0.2)
    assert _round(None, PRIOR, first, second, first) == second
    known, prior = second, later(second)
    third = _after(prior, 1, 0.3)
    assert _round(known, prior, None, third, known) == third


def test_what_others_added_meanwhile_stays() -> None:
    one, other = _after(PRIOR, 2, 0.1), _after(PRIOR, 3, -0.2)
    both = _round(None, PRIOR, None, other, one)
    assert both.n_trials == 5
    # Evidence of equal weight, with a prior at 0: a third of 0.1 and -0.2 with it.
    assert both.log_factors[0] == pytest.approx((2 * 0.1 - 2 * 0.2) / 3)
    assert both.deviations["gemm"] == pytest.approx(PRIOR.deviations["gemm"] / 3**0.5)
    more = _after(other, 1, -0.2)
    again = _round(None, PRIOR, other, more, both)
    assert again.n_trials == 6
    assert again.deviations["gemm"] < both.deviations["gemm"]


def test_a_round_without_a_trial_teaches_nothing() -> None:
    state = {"prior": PRIOR.model_dump(), "calibration": PRIOR.model_dump()}
    assert learned(None, None, state) is None
