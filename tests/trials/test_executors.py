"""What every executor must do, tried on each of them for real."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trials.conftest import finish, make_trial
from tests.trials.slurm_cluster import SlurmCluster, missing
from trials.executors.local import LocalExecutor
from trials.executors.protocol import Executor, State
from trials.executors.slurm import SlurmExecutor, SlurmSettings
from trials.preflight import Refused
from trials.step_log import RankSteps


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmExecutor]:
    lacking = missing()
    if lacking or os.geteuid() != 0:
        pytest.skip(f"Slurm is not installed here: {', '.join(lacking) or 'not root'}")
    folder = Path(f"/tmp/mw-slurm-{os.getpid()}")  # a socket's path must be short
    cluster = SlurmCluster(folder)
    try:
        cluster.start()
        yield SlurmExecutor(
            SlurmSettings(
                root=tmp_path_factory.mktemp("slurm"),
                nodes=2,
                ranks_per_node=2,
                partition="gpu",
                environment={**cluster.environment, "MASTER_ADDR": "127.0.0.1"},
            )
        )
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(
    params=[
        "local",
        pytest.param("slurm", marks=pytest.mark.real),
        pytest.param("ssh", marks=pytest.mark.real),
    ]
)
def executor(request: pytest.FixtureRequest) -> Executor:
    found: Executor = request.getfixturevalue(request.param)
    return found


def unique(name: str) -> str:
    return f"{name}-{time.monotonic_ns()}"


@pytest.mark.slow
def test_a_trial_runs_once_however_often_it_is_submitted(executor: Executor) -> None:
    trial = make_trial(unique("twice"), dp=2, zero_stage=1)
    executor.submit(trial)
    executor.submit(trial)
    result = finish(executor, trial.trial_id)
    executor.submit(trial)
    assert executor.state(trial.trial_id) is State.ENDED
    assert result.outcome.kind == "ok", result.outcome.message
    assert len(result.ranks) == 2
    assert result.step_seconds is not None
    assert executor.result(trial.trial_id) == result
    with pytest.raises(Refused, match="another trial has run under the id"):
        executor.submit(trial.model_copy(update={"steps": 3}))


@pytest.mark.slow
def test_a_cancelled_trial_ends_with_a_result_that_says_so(executor: Executor) -> None:
    trial = make_trial(unique("cancelled"), trial={"steps": 100_000}, dp=2)
    executor.submit(trial)
    until = time.monotonic() + 60
    while executor.state(trial.trial_id) is not State.RUNNING and time.monotonic() < until:
        time.sleep(0.01)
    executor.cancel(trial.trial_id)
    assert finish(executor, trial.trial_id).outcome.kind == "cancelled"


@pytest.mark.slow
def test_the_steps_of_a_trial_are_seen_while_it_runs(executor: Executor) -> None:
    trial = make_trial(unique("watched"), trial={"steps": 100_000}, dp=2)
    assert executor.steps(trial.trial_id, 5) == ()
    begun: list[RankSteps] = []
    executor.submit(trial)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        seen = executor.steps(trial.trial_id, 5)
        if len(seen) == 2 and all(one.done > 5 for one in seen):
            break
        begun += [one for one in seen if one.done == 0]
        time.sleep(0.05)
    assert executor.state(trial.trial_id) is State.RUNNING
    executor.cancel(trial.trial_id)
    assert {one.phase for one in begun} >= {"init"}
    assert [one.rank for one in seen] == [0, 1]
    assert all(len(one.steps) == 5 and one.done > 5 for one in seen)
    assert all(step.seconds > 0 and step.loss > 0 for one in seen for step in one.steps)
    assert {one.phase for one in seen} <= {"forward", "backward", "step"}


@pytest.mark.slow
def test_a_config_that_the_engine_refuses_is_an_outcome_with_its_message(
    executor: Executor,
) -> None:
    good = make_trial(unique("refused"), dp=2, zero_stage=1)
    config = good.ds_config | {"zero_optimization": {"stage": 1, "no_such_key": True}}
    bad = good.model_copy(update={"ds_config": config})
    executor.submit(bad)
    outcome = finish(executor, bad.trial_id).outcome
    assert outcome.kind == "refused", outcome
    assert "no_such_key" in outcome.message


def test_a_plan_larger_than_the_executor_is_refused_before_launch(executor: Executor) -> None:
    trial = make_trial(unique("large"), dp=4, tp=2, zero_stage=1)
    for refuse in (executor.check, executor.submit):
        with pytest.raises(Refused, match="8 ranks"):
            refuse(trial)
    assert executor.state(trial.trial_id) is State.UNKNOWN


def test_what_can_run_passes_the_check_and_is_not_started(executor: Executor) -> None:
    trial = make_trial(unique("checked"), dp=2, zero_stage=1)
    executor.check(trial)
    assert executor.state(trial.trial_id) is State.UNKNOWN


def test_ranks_that_do_not_fill_nodes_evenly_are_refused_before_launch(tmp_path: Path) -> None:
    executor = SlurmExecutor(SlurmSettings(root=tmp_path, nodes=2, ranks_per_node=2))
    with pytest.raises(Refused, match="3 ranks do not fill 2 nodes"):
        executor.check(make_trial("odd", global_batch=3, dp=3))


def test_a_missing_library_is_refused_before_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trials.preflight.LIBRARIES", ("torch", "no_such_library"))
    with pytest.raises(Refused, match="lacks no_such_library"):
        LocalExecutor(tmp_path, ranks=2).check(make_trial("lacking", dp=2))


def test_the_image_of_a_cluster_is_an_option_of_its_srun(tmp_path: Path) -> None:
    settings = SlurmSettings(root=tmp_path, nodes=1, ranks_per_node=2, image="site/train:1")
    script = SlurmExecutor(settings).script(make_trial("boxed", dp=2), tmp_path / "boxed")
    line = next(line for line in script.splitlines() if line.startswith("srun"))
    assert "--container-image=site/train:1" in line
    assert f"--container-mounts={tmp_path}:{tmp_path}" in line


def test_a_trial_that_was_never_submitted_is_unknown(executor: Executor) -> None:
    assert executor.state("never-submitted") is State.UNKNOWN
    assert executor.result("never-submitted") is None


@pytest.mark.slow
def test_a_killed_rank_leaves_an_outcome_and_no_process(local: LocalExecutor) -> None:
    trial = make_trial(unique("killed"), trial={"steps": 100_000}, dp=2)
    local.submit(trial)
    folder = local.root / trial.trial_id
    until = time.monotonic() + 60
    while not (folder / "phase-1").exists() and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(1.0)
    os.kill(ranks_of(folder)[0], 9)
    result = finish(local, trial.trial_id)
    assert result.outcome.kind == "out_of_host_memory", result.outcome
    assert ranks_of(folder) == []


def ranks_of(folder: Path) -> list[int]:
    """Processes whose standard output is a rank's log of this trial."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder / "log-") in os.readlink(entry / "fd" / "1"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
