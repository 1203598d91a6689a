import pytest

from tests.trials.campaign.machine import Machine, request
from trials.campaign import CampaignSettings, run
from trials.executors.protocol import State
from trials.preflight import Refused
from trials.trial_file import TrialFile


class Forgetful(Machine):
    """Forgets the first trial."""

    def state(self, trial_id: str) -> State:
        return State.UNKNOWN if trial_id == "c-000" else super().state(trial_id)


class Refusing(Machine):
    """Refuses the first trial."""

    def submit(self, trial: TrialFile) -> None:
        if trial.trial_id == "c-000":
            raise Refused("not here")
        super().submit(trial)


class Endless(Machine):
    """No trial ends; somebody loses patience."""

    cancelled: tuple[str, ...] = ()

    def state(self, trial_id: str) -> State:
        raise KeyboardInterrupt

    def cancel(self, trial_id: str) -> None:
        self.cancelled = (*self.cancelled, trial_id)


def test_a_trial_that_the_executor_has_forgotten_counts_as_lost() -> None:
    resolved = request()
    machine = Forgetful(resolved, {})
    settings = CampaignSettings(max_trials=2, confidence=1.0)
    state = run(resolved, settings, "c", machine, lost_s=0.01, poll_s=0.01)
    assert [t.outcome for t in state.trials] == ["launch_failure", "ok"]
    assert "knows nothing" in state.trials[0].message


def test_a_refused_trial_is_a_failed_one_with_its_reason() -> None:
    resolved = request()
    settings = CampaignSettings(max_trials=2, confidence=1.0)
    state = run(resolved, settings, "c", Refusing(resolved, {}))
    assert [t.outcome for t in state.trials] == ["refused", "ok"]
    assert state.trials[0].message == "not here"


def test_what_is_pending_is_cancelled_when_it_is_interrupted() -> None:
    resolved = request()
    machine = Endless(resolved, {})
    with pytest.raises(KeyboardInterrupt):
        run(resolved, CampaignSettings(parallel=2), "c", machine)
    assert machine.cancelled == ("c-000", "c-001")
