"""The campaign, step by step. Every step is a pure function of the request and the state."""

from collections import Counter
from collections.abc import Iterable, Mapping

from cost_model.calibration.cluster import ClusterCalibration, cluster_key, later, uncalibrated
from cost_model.calibration.cluster_fit import fit
from cost_model.plans import Plan
from planner.request import Resolved
from trials.campaign.choose import proposals
from trials.campaign.files import trial_file, untried_proxies
from trials.campaign.notes import notes, nothing_triable
from trials.campaign.observe import measured, observations
from trials.campaign.ranking import rerank
from trials.campaign.state import CampaignSettings, CampaignState, CampaignTrial
from trials.preflight import refusal
from trials.result import TrialResult
from trials.trial_file import TrialFile

HOPELESS = 3
"""So many trials none of which ran: the cluster or the model is the matter, not the plan."""

NOTHING_TRIABLE = "no trial can be run"
"""Why a campaign ends before its first trial: neither a plan nor a smaller run of it runs there."""

NOT_ITS_FAULT = ("launch_failure", "cancelled")
"""Ends of a trial that say nothing of its plan."""


def begin(
    resolved: Resolved,
    settings: CampaignSettings,
    campaign_id: str,
    *,
    ranks: int,
    known: ClusterCalibration | None = None,
) -> CampaignState:
    """A campaign before its first trial. ranks: of the executor.

    known: what earlier campaigns taught of the cluster; ValueError where it is another cluster's.
    """
    key = cluster_key(resolved.cluster)
    if known is not None and known.key != key:
        raise ValueError(f"the calibration is of {known.key}; the request's cluster is {key}")
    prior = uncalibrated(resolved.cluster) if known is None else later(known)
    state = CampaignState(
        campaign_id=campaign_id, settings=settings, ranks=ranks, prior=prior, calibration=prior
    )
    return _ended(resolved, _reranked(resolved, state))


def propose(resolved: Resolved, state: CampaignState) -> tuple[TrialFile, ...]:
    """The trials to submit now: as many as may run beside those pending. The same for the same
    state; empty where there is nothing to do but wait, or nothing more to try."""
    files: list[TrialFile] = []
    while state.ended is None:
        free = state.settings.parallel - len(state.pending)
        if free <= 0 or len(state.trials) >= state.settings.max_trials:
            break
        file = _next(resolved, state)
        if file is None:
            break
        files.append(file)
        state = submitted(state, (file,))
    return tuple(files)


def submitted(state: CampaignState, files: Iterable[TrialFile]) -> CampaignState:
    """The state with the files as pending trials; those it knows already change nothing."""
    known = {t.trial_id for t in state.trials}
    new = [
        CampaignTrial(
            trial_id=file.trial_id,
            plan=file.proposal.candidate,
            proxy=file.proposal.proxy,
            origin=file.proposal.origin,
            note=file.proposal.note,
            predicted_seconds=file.proposal.predicted_seconds,
            predicted_bytes=file.proposal.predicted_bytes,
        )
        for file in files
        if file.trial_id not in known and file.proposal is not None
    ]
    return state.model_copy(update={"trials": (*state.trials, *new)})


def learn(
    resolved: Resolved, state: CampaignState, results: Mapping[str, TrialResult]
) -> CampaignState:
    """The state after results, by trial id: calibration refitted, ranking recomputed, end decided.

    Results of trials that are unknown or have ended already change nothing.
    """
    new = {t.trial_id for t in state.pending} & set(results)
    if not new:
        return _ended(resolved, state)
    trials = tuple(
        measured(t, results[t.trial_id], resolved.cluster) if t.trial_id in new else t
        for t in state.trials
    )
    state = state.model_copy(update={"trials": trials})
    seen = observations(resolved, state.settings, trials)
    ended = [t for t in trials if not (t.pending or t.foreign)]
    calibration = state.prior
    if seen.steps or seen.memory or seen.collectives:
        calibration = fit(
            state.prior, resolved.cluster, seen, n_trials=len(ended), start=state.calibration
        )
    return _ended(
        resolved, _reranked(resolved, state.model_copy(update={"calibration": calibration}))
    )


def _reranked(resolved: Resolved, state: CampaignState) -> CampaignState:
    found = rerank(resolved, state.settings, state.calibration, state.trials)
    state = state.model_copy(
        update={"ranking": found.ranking, "best": found.best, "confidence": found.confidence}
    )
    state = state.model_copy(update={"notes": notes(resolved, state)})
    if not found.ranking:
        return state.model_copy(update={"ended": "nothing fits"})
    return state


def _ended(resolved: Resolved, state: CampaignState) -> CampaignState:
    """Whether there is anything left to do."""
    if state.ended is not None or state.pending:
        return state
    settings, done = state.settings, state.trials
    reason = None
    if not any(t.ran for t in done) and len(done) >= HOPELESS:
        reason = "nothing runs"
    elif (
        any(t.ran and not t.foreign for t in done)
        and state.confidence >= settings.confidence
        and _unverified(resolved, state) is None
    ):
        reason = "confident"
    elif len(done) >= settings.max_trials:
        reason = "budget spent"
    elif settings.max_seconds is not None and (
        sum(t.wall_seconds for t in done) >= settings.max_seconds
    ):
        reason = "time spent"
    elif not _any_left(resolved, state):
        reason = "all plans tried" if done else NOTHING_TRIABLE
    told = state.notes
    if reason == NOTHING_TRIABLE:
        told = (*told, nothing_triable(state))
    return state.model_copy(update={"ended": reason, "notes": told})


def _unverified(resolved: Resolved, state: CampaignState) -> Plan | None:
    """The best plan, where it is said to be known and a trial could still verify it."""
    best = state.best
    if best is None or state.confidence < state.settings.confidence:
        return None
    tried = any(t.plan == best and not t.foreign for t in state.trials)
    return None if tried or not _runs(resolved, state, best) else best


def _next(resolved: Resolved, state: CampaignState) -> TrialFile | None:
    """The next trial. A proxy whose other depth was not run yet comes first."""
    for plan, trial in _begun(state).items():
        for proxy in untried_proxies(resolved, state, plan):
            return trial_file(resolved, state, plan, proxy, drawn=trial.origin == "sampler")
    best = _unverified(resolved, state)
    if best is not None:
        return _first_trial(resolved, state, best, drawn=False)
    for plan, drawn in proposals(resolved, state, _tried(state)):
        if _runs(resolved, state, plan):
            return _first_trial(resolved, state, plan, drawn=drawn)
    return None


def _first_trial(resolved: Resolved, state: CampaignState, plan: Plan, *, drawn: bool) -> TrialFile:
    """The trial of a plan that runs here, or of its deepest proxy."""
    small_one = plan.world_size > state.ranks
    proxy = untried_proxies(resolved, state, plan)[0] if small_one else None
    return trial_file(resolved, state, plan, proxy, drawn=drawn)


def _any_left(resolved: Resolved, state: CampaignState) -> bool:
    """Whether `_next` finds a trial."""
    if any(untried_proxies(resolved, state, plan) for plan in _begun(state)):
        return True
    tried = _tried(state)
    return any(r.plan not in tried and _runs(resolved, state, r.plan) for r in state.ranking)


def _begun(state: CampaignState) -> dict[Plan, CampaignTrial]:
    """Plans with a proxy that ran, runs, or was too deep: the other depth is worth running."""
    going = (None, "ok", "pruned", "out_of_gpu_memory", "out_of_host_memory")
    return {t.plan: t for t in state.trials if t.proxy is not None and t.outcome in going}


def _tried(state: CampaignState) -> set[Plan]:
    """Plans that need no other trial; one that never came to run gets a second chance."""
    attempts = Counter(t.plan for t in state.trials)
    unlucky = {t.plan for t in state.trials if t.outcome in NOT_ITS_FAULT}
    return {plan for plan, count in attempts.items() if plan not in unlucky or count > 1}


def _runs(resolved: Resolved, state: CampaignState, plan: Plan) -> bool:
    """Whether the executor can run the plan or a proxy of it."""
    runs = plan
    if plan.world_size > state.ranks:
        proxies = untried_proxies(resolved, state, plan) if state.settings.proxies else ()
        if not proxies:
            return False
        runs = proxies[0].plan
    return refusal(runs, resolved.training.seq_len, ranks=state.ranks) is None
