"""A campaign driven to its end by one process; the service drives the same steps durably."""

import time
from collections.abc import Callable

from cost_model.calibration.cluster import ClusterCalibration
from planner.request import Resolved
from trials.campaign.state import CampaignSettings, CampaignState
from trials.campaign.steps import begin, learn, propose, submitted
from trials.executors.protocol import Executor, State
from trials.outcome import Outcome
from trials.preflight import Refused
from trials.result import TrialResult


def run(
    resolved: Resolved,
    settings: CampaignSettings,
    campaign_id: str,
    executor: Executor,
    *,
    known: ClusterCalibration | None = None,
    on_change: Callable[[CampaignState], None] | None = None,
    poll_s: float = 0.05,
) -> CampaignState:
    """The ended campaign. on_change: is called with every new state."""
    state = begin(resolved, settings, campaign_id, ranks=executor.ranks, known=known)
    told = on_change or (lambda _: None)
    told(state)
    while state.ended is None:
        files = propose(resolved, state)
        state = submitted(state, files)
        results: dict[str, TrialResult] = {}
        for file in files:
            try:
                executor.submit(file)
            except Refused as refused:
                results[file.trial_id] = TrialResult(
                    trial_id=file.trial_id,
                    outcome=Outcome(kind="refused", message=str(refused)),
                    ranks=(),
                )
        if files:
            told(state)
        while not results:
            results = finished(executor, state)
            if not results and state.pending:
                time.sleep(poll_s)
            elif not state.pending:
                break
        state = learn(resolved, state, results)
        told(state)
    return state


def finished(executor: Executor, state: CampaignState) -> dict[str, TrialResult]:
    """Results of pending trials that have ended."""
    results = {}
    for trial in state.pending:
        if executor.state(trial.trial_id) is not State.ENDED:
            continue
        result = executor.result(trial.trial_id)
        if result is not None:
            results[trial.trial_id] = result
    return results
