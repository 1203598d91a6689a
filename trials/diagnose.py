"""What is wrong in a trial that ran: ranks that should agree and do not, losses that lie."""

import math

from cost_model.plans import Plan, Recompute
from trials.result import Finding, RankReport, StepMeasurement

STILL = 1e-4
"""Relative change of the loss under which it counts as not moving."""
APART = 1e-2
"""Relative difference of a global gradient norm between ranks that is no rounding."""


def diagnose(plan: Plan, reports: tuple[RankReport, ...], *, same_batch: bool) -> list[Finding]:
    """All findings of a trial's reports."""
    findings: list[Finding] = []
    runs = [(*r.warmup, *r.steps) for r in reports]
    count = min((len(run) for run in runs), default=0)
    if not count:
        return findings
    for step in range(count):
        norms = [n for run in runs if (n := run[step].grad_norm) is not None and math.isfinite(n)]
        if norms and max(norms) - min(norms) > APART * max(norms):
            findings.append(
                Finding(
                    name="gradient norms differ",
                    message=f"step {step}: the global norm is {min(norms):.4g} on one rank and "
                    f"{max(norms):.4g} on another; a reduction misses ranks",
                )
            )
            break
    losses = [run[step].loss for run in runs for step in range(count)]
    finite = [loss for loss in losses if math.isfinite(loss)]
    broken = len([loss for loss in losses if math.isinf(loss)])
    if broken or _not_a_number_later(runs, count):
        cause = (
            "; with recompute, look at the random state first (dropout draws another mask)"
            if plan.recompute is not Recompute.NONE
            else ""
        )
        findings.append(
            Finding(name="loss not a number", message=f"the loss left the numbers{cause}")
        )
    first = [run[0].loss for run in runs if math.isfinite(run[0].loss)]
    last = [run[count - 1].loss for run in runs if math.isfinite(run[count - 1].loss)]
    if same_batch and count > 2 and first and last and finite:
        change = sum(first) / len(first) - sum(last) / len(last)
        if change < STILL * abs(sum(first) / len(first)):
            findings.append(
                Finding(
                    name="loss does not fall",
                    message=f"the same batch {count} times changed the loss by {-change:.2g}",
                )
            )
    return findings


def _not_a_number_later(runs: list[tuple[StepMeasurement, ...]], count: int) -> bool:
    """A rank without a loss (an early pipeline stage) reports NaN from the start; that is well."""
    for run in runs:
        losses = [step.loss for step in run[:count]]
        if math.isfinite(losses[0]) and any(math.isnan(loss) for loss in losses):
            return True
    return False
