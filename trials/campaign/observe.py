"""From trials to what the calibration is fitted on."""

import math
from collections.abc import Iterable

from cost_model.calibration.observations import (
    STEP_NOISE,
    CollectiveObservation,
    KernelObservation,
    MemoryObservation,
    Observations,
    StepObservation,
)
from cost_model.plans import Plan
from cost_model.specs import ClusterSpec
from planner.request import Resolved
from trials.campaign.proxy import Small, small
from trials.campaign.state import CampaignSettings, CampaignTrial
from trials.result import TrialResult

SLOW_NOISE = 0.5
"""Log-normal standard deviation of the bound that a trial out of time gives: part of it started."""

TRAINING_PHASES = ("forward", "backward", "step")


def measured(trial: CampaignTrial, result: TrialResult, cluster: ClusterSpec) -> CampaignTrial:
    """The trial with its result."""
    seconds = result.step_seconds
    first = result.ranks[0] if result.ranks else None
    on_cpu = any(report.device == "cpu" for report in result.ranks)
    wants_cpu = cluster.node.gpu.generation == "cpu"
    return trial.model_copy(
        update={
            "measured_seconds": seconds,
            "noise": _noise(result),
            "measured_bytes": result.allocated_bytes,
            "outcome": result.outcome.kind,
            "message": result.outcome.message[:500],
            "phase": result.outcome.phase,
            "wall_seconds": result.wall_seconds,
            "foreign": seconds is not None and on_cpu != wants_cpu,
            "collectives": first.collectives if first else (),
            "kernels": first.kernels if first else (),
        }
    )


def _noise(result: TrialResult) -> float:
    """Standard error of the median of the logarithms, from their own scatter."""
    if result.step_seconds is None:
        return STEP_NOISE
    count = min(len(r.steps) for r in result.ranks)
    slowest = [max(r.steps[i].seconds for r in result.ranks) for i in range(count)]
    logs = sorted(math.log(max(s, 1e-9)) for s in slowest)
    middle = logs[len(logs) // 2]
    apart = sorted(abs(v - middle) for v in logs)[len(logs) // 2]
    # 1.48 makes a normal deviation of a median absolute one, 1.25 / sqrt(n) is a median's error
    return max(STEP_NOISE, 1.48 * 1.25 * apart / math.sqrt(len(logs)))


def world_of(resolved: Resolved, trial: CampaignTrial) -> tuple[Small, Plan]:
    """Model, training and plan that a trial runs: the plan's own, or the proxy's."""
    if trial.proxy is None:
        return Small(resolved.model, resolved.training), trial.plan
    return small(resolved.model, resolved.training, trial.proxy), trial.proxy.plan


def observations(
    resolved: Resolved, settings: CampaignSettings, trials: Iterable[CampaignTrial]
) -> Observations:
    """Everything that the ended trials on the cluster's own devices tell."""
    steps: list[StepObservation] = []
    sweep: list[CollectiveObservation] = []
    kernels: list[KernelObservation] = []
    memory: list[MemoryObservation] = []
    for trial in trials:
        if trial.pending or trial.foreign:
            continue
        world, plan = world_of(resolved, trial)
        if trial.ran and trial.measured_seconds is not None:
            steps.append(
                StepObservation(
                    world.model, world.training, plan, trial.measured_seconds, noise=trial.noise
                )
            )
        elif trial.outcome == "hang" and trial.phase in TRAINING_PHASES:
            least = settings.trial_timeout_s / (settings.warmup_steps + settings.steps)
            steps.append(
                StepObservation(
                    world.model, world.training, plan, least, at_least=True, noise=SLOW_NOISE
                )
            )
        if trial.measured_bytes is not None or trial.outcome == "out_of_gpu_memory":
            died = trial.outcome == "out_of_gpu_memory"
            held = None if died else trial.measured_bytes
            memory.append(MemoryObservation(world.model, world.training, plan, held))
        sweep += _sweep(plan, trial)
        kernels += [
            KernelObservation(k.kind, k.seconds, k.m, k.n, k.k, k.n_bytes) for k in trial.kernels
        ]
    return Observations(
        tuple(steps), tuple(sweep), tuple(kernels), resolved.training, tuple(memory)
    )


def _sweep(plan: Plan, trial: CampaignTrial) -> list[CollectiveObservation]:
    """Points of the trial's own groups. Ranks are laid tp, sp, cp, dp, pp, the first the nearest
    (trials.parallel.mesh)."""
    strides = {"tp": 1, "sp": plan.tp, "zero": plan.tp}
    strides["cp"] = plan.tp * plan.sp
    strides["dp"] = strides["cp"] * plan.cp
    strides["pp"] = strides["dp"] * plan.dp
    return [
        CollectiveObservation(c.kind, c.ranks, strides[c.axis], c.n_bytes, c.seconds)  # type: ignore[arg-type]
        for c in trial.collectives
    ]
