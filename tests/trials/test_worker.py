"""What a worker measures, and how a trial ends in which one rank does not come."""

import copy
import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.trials.conftest import finish, make_trial
from tests.trials.models import decoder
from tests.trials.test_executors import ranks_of, unique
from trials.executors.local import LocalExecutor
from trials.result import TrialResult


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named_by_the_time_out_of_the_others(
    local: LocalExecutor,
) -> None:
    options = {"steps": 100_000, "collective_timeout_s": 3.0, "timeout_s": 400}
    trial = make_trial(unique("late"), trial=options, dp=2, zero_stage=1)
    local.submit(trial)
    folder = local.root / trial.trial_id
    wait_for_training(folder / "phase-1")
    late = next(pid for pid in ranks_of(folder) if log_of(pid) == "log-1.txt")
    os.kill(late, signal.SIGSTOP)
    result = finish(local, trial.trial_id, 300)
    assert result.outcome.kind == "collective_timeout", result.outcome
    assert result.outcome.rank == 1
    assert ranks_of(folder) == []


@pytest.mark.slow
def test_waits_for_collectives_are_measured_by_kind(train: Callable[..., TrialResult]) -> None:
    result = train(unique("kinds"), dp=2, zero_stage=3, trial={"sweep_collectives": True})
    assert result.outcome.kind == "ok", result.outcome
    for rank in result.ranks:
        step = rank.steps[-1]
        assert {"all_gather", "reduce_scatter"} <= set(step.communication)
        assert 0 < sum(step.communication.values()) < step.seconds
        assert {m.phase for m in rank.memory} >= {"init", "forward", "backward", "step"}
        assert all(m.host > 0 for m in rank.memory)
        assert {c.kind for c in rank.collectives if c.axis == "dp"} == {
            *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p")
        }
    assert result.performance is not None
    assert result.performance.mfu is not None
    assert 0 < result.performance.mfu < 1


@pytest.mark.slow
def test_a_loss_that_explodes_is_an_outcome_and_the_result_can_be_read(
    local: LocalExecutor,
) -> None:
    trial = make_trial(unique("nan"), trial={"same_batch": False}, dp=2, zero_stage=1)
    config = copy.deepcopy(trial.ds_config)
    # Adam divides nothing by nothing in the rows of tokens that the first batch does not have.
    config["optimizer"]["params"]["eps"] = 0.0
    local.submit(trial.model_copy(update={"ds_config": config}))
    result = finish(local, trial.trial_id)
    assert result.outcome.kind == "not_a_number", (result.outcome, result.losses)
    assert "loss not a number" in {f.name for f in result.findings}


@pytest.mark.slow
def test_the_sweep_goes_over_the_experts_groups_too(train: Callable[..., TrialResult]) -> None:
    options = {"sweep_collectives": True}
    result = train(unique("ep"), decoder(experts=4), dp=2, ep=2, zero_stage=2, trial=options)
    assert result.outcome.kind == "ok", result.outcome
    for rank in result.ranks:
        measured = {c.kind: c.ranks for c in rank.collectives if c.axis == "ep"}
        assert measured["all_to_all"] == 2


def wait_for_training(path: os.PathLike[str], limit_s: float = 300) -> None:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                words = file.read().split()
            if len(words) == 2 and int(words[1]) > 20:
                return
        time.sleep(0.02)
    raise TimeoutError(path)


def log_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/fd/1").rsplit("/", 1)[-1]
