"""A campaign of real trials: two ranks on this machine's processor."""

from pathlib import Path

import pytest

from tests.trials.campaign.machine import request
from trials.campaign import CampaignSettings, run
from trials.executors.local import LocalExecutor


@pytest.mark.slow
def test_a_campaign_on_this_machine_learns_from_its_trials(tmp_path: Path) -> None:
    resolved = request(fixed={"zero_stage": 1})
    executor = LocalExecutor(tmp_path, ranks=2)
    settings = CampaignSettings(max_trials=2, steps=2, warmup_steps=1, confidence=1.0)
    try:
        state = run(resolved, settings, "real", executor)
    finally:
        executor.close()
    assert state.ended == "budget spent"
    assert [t.outcome for t in state.trials if t.outcome not in ("ok", "pruned")] == []
    assert state.trials[0].collectives
    assert state.trials[0].kernels
    assert state.calibration.n_trials == 2
    assert state.best in [t.plan for t in state.trials]
    best = next(t for t in state.trials if t.plan == state.best)
    ranked = next(r for r in state.ranking if r.plan == state.best)
    assert best.measured_seconds is not None
    assert ranked.seconds == pytest.approx(best.measured_seconds, rel=0.2)
