"""What only hosts without a scheduler can do wrong: one is away, one dies, one was not started."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trials.conftest import finish, make_trial
from tests.trials.test_executors import unique
from trials.executors.node import pid_path
from trials.executors.protocol import State
from trials.executors.ssh import SshExecutor, SshSettings
from trials.preflight import Refused


@pytest.mark.real
def test_a_host_that_does_not_answer_is_an_outcome_with_its_name(
    ssh: SshExecutor,
) -> None:
    away = replace(ssh.settings, hosts=("host-1", "nobody@127.0.0.1"))
    trial = make_trial(unique("away"), dp=2, zero_stage=1)
    executor = SshExecutor(away)
    executor.submit(trial)
    outcome = finish(executor, trial.trial_id).outcome
    assert outcome.kind == "launch_failure"
    assert "nobody@127.0.0.1" in outcome.message


@pytest.mark.slow
@pytest.mark.real
def test_a_rank_that_dies_on_one_host_ends_the_trial_on_all(
    ssh: SshExecutor,
) -> None:
    trial = make_trial(unique("dies"), trial={"steps": 100_000}, dp=2)
    ssh.submit(trial)
    folder = ssh.settings.root / trial.trial_id
    until = time.monotonic() + 60
    while len(ssh.steps(trial.trial_id, 1)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    second = int(pid_path(folder, 1).read_text())
    ranks = Path(f"/proc/{second}/task/{second}/children").read_text().split()
    os.kill(int(ranks[0]), signal.SIGKILL)
    outcome = finish(ssh, trial.trial_id).outcome
    assert outcome.kind == "out_of_host_memory"
    assert outcome.rank == 1


@pytest.mark.slow
@pytest.mark.real
def test_a_submit_that_was_interrupted_is_finished_by_the_next_one(
    ssh: SshExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException):
        """As a service is killed between two hosts."""

    call = SshExecutor._call

    def dies(self: SshExecutor, host: str, command: str) -> str:
        if host == "host-2":
            raise Killed
        return call(self, host, command)

    trial = make_trial(unique("resumed"), dp=2, zero_stage=1)
    monkeypatch.setattr(SshExecutor, "_call", dies)
    with pytest.raises(Killed):
        ssh.submit(trial)
    monkeypatch.undo()
    assert ssh.state(trial.trial_id) in (State.QUEUED, State.RUNNING)
    ssh.submit(trial)
    assert finish(ssh, trial.trial_id).outcome.kind == "ok"


def test_ranks_that_do_not_fill_hosts_evenly_are_refused_before_launch(tmp_path: Path) -> None:
    settings = SshSettings(root=tmp_path, hosts=("a", "b"), ranks_per_host=2)
    with pytest.raises(Refused, match="3 ranks do not fill 2 hosts"):
        SshExecutor(settings).check(make_trial("odd", global_batch=3, dp=3))
