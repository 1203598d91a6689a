import numpy as np
import pytest

from cost_model.calibration.cluster import uncalibrated
from cost_model.plans import Plan, PlanTable
from tests.trials.campaign.machine import request
from trials.campaign import CampaignTrial
from trials.campaign.surrogate import believe, likeness

ZERO_0 = Plan(dp=2, micro_batch=4)
ZERO_1 = Plan(dp=2, micro_batch=4, zero_stage=1)
TENSOR = Plan(tp=2, micro_batch=1, grad_accum=8, zero_stage=3)
PLANS = [ZERO_0, ZERO_1, TENSOR]


def tried(plan: Plan, seconds: float) -> CampaignTrial:
    return CampaignTrial(
        trial_id="c-000",
        plan=plan,
        predicted_seconds=1.0,
        measured_seconds=seconds,
        predicted_bytes=1.0,
        outcome="ok",
        noise=0.01,
    )


def test_a_measured_plan_takes_about_what_was_measured() -> None:
    resolved = request()
    own = uncalibrated(resolved.cluster)
    before = believe(resolved, own, PLANS, [])
    seconds = 1.2 * float(np.exp(before.mean[0]))
    after = believe(resolved, own, PLANS, [tried(ZERO_0, seconds)])
    assert np.exp(after.mean[0]) == pytest.approx(seconds, rel=0.01)
    assert after.deviation[0] < 0.02
    assert after.measured.tolist() == [True, False, False]


def test_a_plan_alike_follows_and_one_unlike_hardly_does() -> None:
    resolved = request()
    own = uncalibrated(resolved.cluster)
    before = believe(resolved, own, PLANS, [])
    seconds = 1.2 * float(np.exp(before.mean[0]))
    moved = believe(resolved, own, PLANS, [tried(ZERO_0, seconds)]).mean - before.mean
    assert moved[0] > moved[1] > 2 * moved[2] >= 0


def test_plans_are_as_alike_as_their_knobs() -> None:
    table = PlanTable.from_plans(PLANS)
    alike = likeness(table, table)
    assert np.diag(alike) == pytest.approx([1.0, 1.0, 1.0])
    assert alike == pytest.approx(alike.T)
    assert alike[0, 1] == pytest.approx(np.exp(-0.5))  # one kind apart
    assert alike[0, 2] < 0.2


def test_draws_are_the_same_for_the_same_seed_and_spread_as_believed() -> None:
    resolved = request()
    belief = believe(resolved, uncalibrated(resolved.cluster), PLANS, [])
    draws = belief.draws(3)
    assert np.array_equal(draws, belief.draws(3))
    assert draws.std(axis=0) == pytest.approx(belief.deviation, rel=0.05)
    assert draws.mean(axis=0) == pytest.approx(belief.mean, abs=0.05)
