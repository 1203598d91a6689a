"""What a trial does beside training: adapting its micro-batch, watching its routers."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.trials.conftest import make_trial
from tests.trials.models import decoder
from trials.preflight import Refused, check
from trials.result import Adaptation, MicroBatchMeasurement, TrialResult
from trials.trial_file import TrialFile

Train = Callable[..., TrialResult]

ADAPT: dict[str, Any] = {
    "adapt_micro_batch": {
        **{"patience": 2, "slow_communication_s": 60.0, "worse": 1e9, "saturated": 1.0},
        **{"smallest": 1, "largest": 4, "low_utilisation": 1.0},
    },
    "steps": 10,
    "same_batch": False,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("plain", {"dp": 2, "zero_stage": 2}),
        ("zero-3", {"dp": 2, "zero_stage": 3}),
        ("autotp", {"tp": 2, "zero_stage": 1}),
        ("pipeline", {"pp": 2, "zero_stage": 1, "software": "deepspeed_pipeline"}),
    ],
)
def test_adapting_the_micro_batch_leaves_the_losses_as_they_are(
    name: str, plan: dict[str, Any], train: Train
) -> None:
    whole = {**ADAPT, "adapt_micro_batch": None}
    fixed = train(f"fixed-{name}", global_batch=8, trial=whole, **plan)
    adapted = train(f"adapted-{name}", global_batch=8, trial=ADAPT, **plan)
    assert fixed.outcome.kind == adapted.outcome.kind == "ok", adapted.outcome.message
    found = adapted.ranks[0].adapted
    assert found is not None
    assert [s.micro_batch for s in found.sizes] == [1, 2, 4]
    assert all(r.adapted is not None and r.adapted.settled_on == 4 for r in adapted.ranks)
    # Data-parallel ranks see other sequences of the same global batch.
    assert adapted.losses == pytest.approx(fixed.losses, rel=1e-4)


def test_what_was_won_is_the_last_size_over_the_first() -> None:
    def size(micro: int, seconds: float, utilisation: float) -> MicroBatchMeasurement:
        accum = 8 // micro
        return MicroBatchMeasurement(
            micro_batch=micro,
            grad_accum=accum,
            steps=5,
            seconds=seconds,
            sequences_per_s=8 / seconds,
            utilisation=utilisation,
            bubble=1 / (accum + 1),
            waiting=0.1,
        )

    found = Adaptation(sizes=(size(1, 4.0, 0.5), size(2, 2.0, 0.8)), settled_on=2, settled=True)
    assert found.won("speed") == 2.0
    assert found.won("utilisation") == pytest.approx(0.3)
    # two stages: 1 / 9 of the schedule is idle with 8 micro-batches, 1 / 5 with 4
    assert found.won("bubble") == pytest.approx(1 / 5 - 1 / 9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("dropless", {"dp": 2, "zero_stage": 3}),
        ("capacity", {"dp": 2, "ep": 2, "zero_stage": 2, "capacity_factor": 1.0}),
        ("recompute", {"dp": 2, "zero_stage": 1, "recompute": "full"}),
    ],
)
def test_a_bonus_balances_the_experts_of_a_trial(
    name: str, plan: dict[str, Any], train: Train
) -> None:
    model = decoder(experts=4)
    loads = {}
    for weight in (0.0, 100.0):
        options = {
            "router_bonus": {"weight": weight, "all_ranks": True},
            "steps": 12,
            "same_batch": True,
            "data": "bytes",
        }
        result = train(f"bonus-{name}-{weight}", model, trial=options, **plan)
        assert result.outcome.kind == "ok", result.outcome.message
        loads[weight] = [s.experts for s in result.ranks[0].steps]
    assert all(load is not None and load.cv >= 0 for load in loads[0.0])
    last = {weight: seen[-1] for weight, seen in loads.items()}
    assert last[0.0] is not None
    assert last[100.0] is not None
    assert last[100.0].cv < last[0.0].cv
    if name != "capacity":
        assert last[0.0].dropped == 0.0
    assert not math.isnan(last[100.0].max_over_mean)


def refused(trial: dict[str, Any], message: str, model: Any = None, **plan: Any) -> None:
    made = make_trial("refused", model, **plan)
    whole = TrialFile.model_validate(made.model_dump() | trial)
    with pytest.raises(Refused, match=message):
        check(whole, ranks=8)


def test_a_bonus_without_routers_is_refused_before_launch() -> None:
    refused({"router_bonus": {"weight": 0.1}}, "no routers")


def test_a_bonus_on_pipeline_stages_is_refused_before_launch() -> None:
    refused(
        {"router_bonus": {"weight": 0.1}},
        "pipeline",
        decoder(experts=4),
        pp=2,
        software="deepspeed_pipeline",
    )


def test_a_micro_batch_outside_the_bounds_is_refused_before_launch() -> None:
    refused({"adapt_micro_batch": {"smallest": 2}}, "outside 2-8")
