"""The trial file of a plan, or of a smaller run that stands for it."""

from cost_model.calibration import Coefficients
from cost_model.plans import Plan, PlanTable
from cost_model.predict import predict
from planner.export import ds_config
from planner.request import Resolved
from trials.campaign.proxy import depths, shrink, small
from trials.campaign.state import CampaignState
from trials.proposal import Proposal, Proxy
from trials.trial_file import TrialFile

FITS = 0.5
"""A proxy that is less likely to fit is made shallower."""


def untried_proxies(resolved: Resolved, state: CampaignState, plan: Plan) -> tuple[Proxy, ...]:
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


def trial_file(
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
