"""The campaign, step by step. Every step is a pure function of the request and the state."""

from collections.abc import Iterable, Mapping

from cost_model.calibration import Coefficients
from cost_model.calibration.cluster import ClusterCalibration, cluster_key, later, uncalibrated
from cost_model.calibration.cluster_fit import fit
from cost_model.plans import Plan, PlanTable
from cost_model.predict import predict
from planner.export import ds_config
from planner.request import Resolved
from trials.campaign.choose import proposals
from trials.campaign.observe import measured, observations
from trials.campaign.proxy import depths, shrink, small
from trials.campaign.ranking import rerank
from trials.campaign.state import CampaignSettings, CampaignState, CampaignTrial
from trials.preflight import SUPPORTED, refusal
from trials.proposal import Proposal, Proxy
from trials.result import TrialResult
from trials.trial_file import TrialFile

HOPELESS = 3
"""So many trials none of which ran: the cluster or the model is the matter, not the plan."""

FITS = 0.5
"""A proxy that is less likely to fit is made shallower."""


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
    return _reranked(resolved, state)


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
    elif any(t.ran and not t.foreign for t in done) and state.confidence >= settings.confidence:
        reason = "confident"
    elif len(done) >= settings.max_trials:
        reason = "budget spent"
    elif settings.max_seconds is not None and (
        sum(t.wall_seconds for t in done) >= settings.max_seconds
    ):
        reason = "time spent"
    elif not _any_left(resolved, state):
        reason = "all plans tried"
    return state.model_copy(update={"ended": reason})


def _next(resolved: Resolved, state: CampaignState) -> TrialFile | None:
    """The next trial. A proxy whose other depth was not run yet comes first."""
    for plan, trial in _begun(state).items():
        for proxy in _untried(resolved, state, plan):
            return _file(resolved, state, plan, proxy, drawn=trial.origin == "sampler")
    for plan, drawn in proposals(resolved, state, {t.plan for t in state.trials}):
        if _runs(resolved, state, plan):
            small_one = plan.world_size > state.ranks
            first = _untried(resolved, state, plan)[0] if small_one else None
            return _file(resolved, state, plan, first, drawn=drawn)
    return None


def _any_left(resolved: Resolved, state: CampaignState) -> bool:
    """Whether `_next` finds a trial."""
    if any(_untried(resolved, state, plan) for plan in _begun(state)):
        return True
    tried = {t.plan for t in state.trials}
    return any(r.plan not in tried and _runs(resolved, state, r.plan) for r in state.ranking)


def _begun(state: CampaignState) -> dict[Plan, CampaignTrial]:
    """Plans with a proxy that ran or runs: the other depth is worth running."""
    going = (None, "ok", "pruned")
    return {t.plan: t for t in state.trials if t.proxy is not None and t.outcome in going}


def _runs(resolved: Resolved, state: CampaignState, plan: Plan) -> bool:
    """Whether the executor can run the plan or a proxy of it."""
    runs = plan
    if plan.world_size > state.ranks:
        proxies = _untried(resolved, state, plan) if state.settings.proxies else ()
        if not proxies:
            return False
        runs = proxies[0].plan
    return refusal(runs, resolved.training.seq_len, ranks=state.ranks) is None


def _untried(resolved: Resolved, state: CampaignState, plan: Plan) -> tuple[Proxy, ...]:
    """Proxies of a plan that were not run yet, the deepest first."""
    cluster = resolved.cluster
    proxy = shrink(plan, resolved.model, ranks=state.ranks, per_node=cluster.node.gpus_per_node)
    if proxy is None:
        return ()
    memory = state.prior.apply_memory()

    def fits(one: Proxy) -> bool:
        world = small(resolved.model, resolved.training, one)
        table = PlanTable.from_plans([one.plan])
        found = predict(world.model, cluster, world.training, table, memory_coefficients=memory)
        return bool(found.fits_probability[0] >= FITS)

    run = {t.proxy for t in state.trials if t.plan == plan}
    return tuple(one for one in depths(proxy, fits) if one not in run)


def _file(
    resolved: Resolved, state: CampaignState, plan: Plan, proxy: Proxy | None, *, drawn: bool
) -> TrialFile:
    """The trial file of a plan, or of a proxy of it."""
    settings, cluster = state.settings, resolved.cluster
    model, training, runs = resolved.model, resolved.training, plan
    if proxy is not None:
        world = small(model, training, proxy)
        model, training, runs = world.model, world.training, proxy.plan
    table = PlanTable.from_plans([runs])
    calibration = state.calibration
    found = predict(
        model,
        cluster,
        training,
        table,
        calibration.apply(Coefficients.default()),
        calibration.apply_memory(),
    )
    return TrialFile(
        trial_id=f"{state.campaign_id}-{len(state.trials):03d}",
        model=model,
        training=training,
        plan=runs,
        ds_config=ds_config(model, cluster, training, runs),
        warmup_steps=settings.warmup_steps,
        steps=settings.steps,
        seed=settings.seed + 1234,
        device="cpu" if cluster.node.gpu.generation == "cpu" else "auto",
        sweep_collectives=not any(t.collectives or t.kernels for t in state.trials),
        step_limit_s=None if proxy is not None else _limit(state),
        timeout_s=settings.trial_timeout_s,
        proposal=Proposal(
            candidate=plan,
            proxy=proxy,
            predicted_seconds=float(found.step.seconds[0]),
            predicted_bytes=float(found.memory.allocated_bytes[0]),
            origin="sampler" if drawn else "ranking",
            note="" if proxy is None else _proxy_note(plan, proxy, resolved),
        ),
    )


def _limit(state: CampaignState) -> float | None:
    """Seconds a step beyond which a trial is clearly slower than the best one."""
    if state.settings.prune_above <= 1:
        return None
    times = [t.measured_seconds for t in state.trials if t.ran and t.proxy is None]
    best = min((t for t in times if t is not None), default=None)
    return None if best is None else best * state.settings.prune_above


def _proxy_note(plan: Plan, proxy: Proxy, resolved: Resolved) -> str:
    made = proxy.plan
    cut = [f"{proxy.layers} of {resolved.model.layers} layers"]
    for name in ("tp", "pp", "dp", "sp", "cp", "ep"):
        before, after = getattr(plan, name), getattr(made, name)
        if before != after:
            cut.append(f"{name} {after} for {before}")
    if made.grad_accum != plan.grad_accum:
        cut.append(f"{made.grad_accum} micro-batches for {plan.grad_accum}")
    return f"stands for {plan.world_size} ranks on {made.world_size}: " + ", ".join(cut)


def notes(resolved: Resolved, state: CampaignState) -> tuple[str, ...]:
    """What a reader of the state must know."""
    found = []
    proxies = [t for t in state.trials if t.proxy is not None]
    if proxies:
        found.append(
            f"{len(proxies)} trials were proxies: smaller runs whose times go into the "
            "calibration; the full plans are predicted by the calibrated model, not measured"
        )
    larger = [r for r in state.ranking if r.plan.world_size > state.ranks]
    if larger and not state.settings.proxies:
        found.append(
            f"{len(larger)} of {len(state.ranking)} plans need more than the {state.ranks} ranks "
            "of the executor and were not tried"
        )
    if any(t.foreign for t in state.trials):
        found.append(
            "trials ran on another device than the cluster's: nothing was learned from them"
        )
    return tuple(found + _left_out(resolved))


def _left_out(resolved: Resolved) -> list[str]:
    names = [s.name.lower() for s in resolved.search.software if s not in SUPPORTED]
    return [f"trials do not run {', '.join(names)}; its plans are left out"] if names else []
