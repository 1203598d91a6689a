"""A campaign driven to its end by one process; the service drives the same steps durably."""

import time
from collections.abc import Callable, Iterable

from cost_model.calibration.cluster import ClusterCalibration
from planner.request import Resolved
from trials.campaign.state import CampaignSettings, CampaignState
from trials.campaign.steps import begin, learn, propose, submitted
from trials.executors.protocol import Executor, State
from trials.outcome import Kind, Outcome
from trials.preflight import Refused
from trials.result import TrialResult
from trials.trial_file import TrialFile

LOST_S = 120.0
"""After so long a trial that the executor knows nothing of counts as lost: shared folders are slow
to show a result, and a scheduler forgets jobs that have ended."""


def run(
    resolved: Resolved,
    settings: CampaignSettings,
    campaign_id: str,
    executor: Executor,
    *,
    known: ClusterCalibration | None = None,
    on_change: Callable[[CampaignState], None] | None = None,
    on_wait: Callable[[CampaignState], None] | None = None,
    poll_s: float = 0.05,
    lost_s: float = LOST_S,
) -> CampaignState:
    """The ended campaign. on_change: is called with every new state; on_wait: at every look at
    what is pending.

    What is pending when it is interrupted is cancelled.
    """
    state = begin(resolved, settings, campaign_id, ranks=executor.ranks, known=known)
    told, waits = on_change or (lambda _: None), on_wait or (lambda _: None)
    told(state)
    watch = Watch(executor, lost_s)
    try:
        while state.ended is None:
            files = propose(resolved, state)
            state = submitted(state, files)
            results = submit(executor, files)
            if files:
                told(state)
            while state.pending and not results:
                results = watch.finished(state)
                if not results:
                    waits(state)
                    time.sleep(poll_s)
            state = learn(resolved, state, results)
            told(state)
    except BaseException:
        for trial in state.pending:
            executor.cancel(trial.trial_id)
        raise
    return state


def submit(executor: Executor, files: Iterable[TrialFile]) -> dict[str, TrialResult]:
    """Starts the trials; those that are refused have their result at once."""
    results = {}
    for file in files:
        try:
            executor.submit(file)
        except Refused as refused:
            results[file.trial_id] = _without_ranks(file.trial_id, "refused", str(refused))
    return results


class Watch:
    """Looks for results, and remembers since when a trial is unknown to its executor."""

    def __init__(self, executor: Executor, lost_s: float) -> None:
        self.executor = executor
        self.lost_s = lost_s
        self.unknown_since: dict[str, float] = {}

    def finished(self, state: CampaignState) -> dict[str, TrialResult]:
        """Results of pending trials that have ended or are lost."""
        results = {}
        for trial in state.pending:
            name = trial.trial_id
            match self.executor.state(name):
                case State.ENDED:
                    result = self.executor.result(name)
                    if result is not None:
                        results[name] = result
                case State.UNKNOWN:
                    since = self.unknown_since.setdefault(name, time.monotonic())
                    if time.monotonic() - since >= self.lost_s:
                        message = "the executor knows nothing of the trial any more"
                        results[name] = _without_ranks(name, "launch_failure", message)
                case _:
                    self.unknown_since.pop(name, None)
        return results


def _without_ranks(trial_id: str, kind: Kind, message: str) -> TrialResult:
    outcome = Outcome(kind=kind, message=message)
    return TrialResult(trial_id=trial_id, outcome=outcome, ranks=())
