"""Campaigns and proxies for real: two ranks on this machine's processor."""

from pathlib import Path
from typing import Any

import pytest

from cost_model.plans import Plan
from planner.request import PlanRequest
from tests.trials.campaign.machine import request
from tests.trials.conftest import finish
from trials.campaign import CampaignSettings, begin, run
from trials.campaign.files import trial_file, untried_proxies
from trials.executors.local import LocalExecutor

DENSE = {"hidden": 64, "layers": 8, "heads": 4, "intermediate": 96, "vocab": 128}
EXPERTS = DENSE | {"experts": 8, "top_k": 2}


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
    best = next(t for t in state.trials if t.plan == state.best)
    assert best.measured_seconds is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "plan"),
    [
        ("tensor", DENSE, {"tp": 4, "dp": 2, "zero_stage": 1}),
        ("stages", DENSE, {"pp": 4, "dp": 2, "zero_stage": 1, "software": "deepspeed_pipeline"}),
        ("experts", EXPERTS, {"dp": 8, "ep": 4, "zero_stage": 1}),
    ],
)
def test_a_proxy_on_two_ranks_trains_for_a_plan_of_eight(
    name: str, model: dict[str, int], plan: dict[str, Any], local: LocalExecutor
) -> None:
    resolved = PlanRequest.parse(
        {
            "model": model,
            "cluster": {
                "preset": "local-cpu",
                "nodes": 4,
                "network": {"kind": "ethernet", "gbps_per_port": 10},
            },
            "training": {"seq_len": 32, "global_batch": 8, "precision": "fp32"},
        }
    ).resolve()
    settings = CampaignSettings(steps=2, warmup_steps=0)
    state = begin(resolved, settings, f"proxy-{name}", ranks=2)
    made = Plan.model_validate(plan | {"nodes": 4, "grad_accum": 8 // plan["dp"]})
    deep, shallow = untried_proxies(resolved, state, made)
    assert shallow.layers == deep.layers // 2
    file = trial_file(resolved, state, made, deep, drawn=False)
    local.submit(file)
    result = finish(local, file.trial_id)
    assert result.outcome.kind == "ok", result.outcome.message
    assert len(result.ranks) == 2
