"""What is wrong in a trial that ran: ranks that should agree and do not, losses that lie."""

import math

from cost_model.plans import Plan, Recompute
from trials.result import Finding, RankReport, StepMeasurement

STILL = 1e-4
"""Relative change of the loss under which it counts as not moving."""
APART = 1e-2
"""Relative difference of a global gradient norm between ranks that is no rounding."""
FEW = 2
"""Steps after which a loss may still not have moved: the first ones are warm-up of the rate."""


Runs = list[tuple[StepMeasurement, ...]]
"""All steps of each rank, warm-up included."""


def diagnose(plan: Plan, reports: tuple[RankReport, ...], *, same_batch: bool) -> list[Finding]:
    """All findings of a trial's reports."""
    runs = [(*r.warmup, *r.steps) for r in reports]
    count = min((len(run) for run in runs), default=0)
    if not count:
        return []
    runs = [run[:count] for run in runs]
    found = (_norms_apart(runs), _not_a_number(plan, runs), _still(runs) if same_batch else None)
    return [finding for finding in found if finding is not None]


def _norms_apart(runs: Runs) -> Finding | None:
    """The global norm is one number: ranks that have another were left out of a reduction."""
    for step, measured in enumerate(zip(*runs, strict=True)):
        norms = [m.grad_norm for m in measured if m.grad_norm is not None]
        finite = [n for n in norms if math.isfinite(n)]
        if finite and len(finite) < len(norms):
            apart = f"{finite[0]:.4g} on one rank and not a number on another"
        elif finite and max(finite) - min(finite) > APART * max(finite):
            apart = f"{min(finite):.4g} on one rank and {max(finite):.4g} on another"
        else:
            continue
        return Finding(
            name="gradient norms differ",
            message=f"step {step}: the global norm is {apart}; a reduction misses ranks",
        )
    return None


def _not_a_number(plan: Plan, runs: Runs) -> Finding | None:
    """Where the loss left the numbers first, and what to look at."""
    for step, measured in enumerate(zip(*runs, strict=True)):
        if all(math.isfinite(m.loss) for m in measured):
            continue
        cause = ""
        if plan.recompute is not Recompute.NONE and step > 0:
            cause = "; with recompute, look at the random state (dropout draws another mask)"
        return Finding(
            name="loss not a number", message=f"the loss left the numbers in step {step}{cause}"
        )
    return None


def _still(runs: Runs) -> Finding | None:
    """A batch that is seen again must have a lower loss."""
    count = len(runs[0])
    first, last = (sum(run[i].loss for run in runs) / len(runs) for i in (0, -1))
    if count <= FEW or not (math.isfinite(first) and math.isfinite(last)):
        return None
    if first - last >= STILL * abs(first):
        return None
    return Finding(
        name="loss does not fall",
        message=f"the same batch {count} times changed the loss by {last - first:.2g}",
    )
