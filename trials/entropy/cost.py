"""What imbalance costs: the step time of a plan, and the time a loss curve takes to a target."""

from dataclasses import dataclass

import numpy as np

from cost_model.plans import Floats, Plan, PlanTable
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec
from cost_model.step import step_time

GRID = np.linspace(1.0, 8.0, 141)
"""Imbalances at which the cost model is asked; between them the time is interpolated."""
BEYOND = 10.0
"""A target that was not reached counts as at most this many times the steps that were run."""


@dataclass(frozen=True)
class StepCost:
    """Step time of the plan that is meant, by the load of its busiest expert."""

    imbalance: Floats
    seconds: Floats

    @classmethod
    def of_plan(
        cls, model: ModelSpec, cluster: ClusterSpec, training: TrainingSpec, plan: Plan
    ) -> "StepCost":
        """From the cost model.

        An expert that takes f times its fair share costs what a capacity factor of f costs, whose
        buffers are computed filled or not (GShard, arXiv 2006.16668, section 2.2).
        """
        if not model.is_moe:
            raise ValueError(f"{model.name} has no experts")
        plans = [plan.model_copy(update={"capacity_factor": float(f)}) for f in GRID]
        found = step_time(model, cluster, training, PlanTable.from_plans(plans))
        return cls(GRID, found.seconds)

    def of(self, capacity_factor: float, max_over_mean: Floats) -> Floats:
        """Seconds of steps with that measured imbalance [steps].

        With a capacity the buffers decide, dropless the busiest expert.
        """
        share = max_over_mean if capacity_factor == 0 else np.full_like(max_over_mean, 1.0)
        return np.interp(share * (capacity_factor or 1.0), self.imbalance, self.seconds)


def smoothed(losses: Floats, span: int = 20) -> Floats:
    """Exponential mean of about `span` steps, without the bias of its start [steps]."""
    decay = 1 - 1 / span
    out, total, weight = np.empty_like(losses), 0.0, 0.0
    for i, loss in enumerate(losses):
        total, weight = decay * total + loss, decay * weight + 1.0
        out[i] = total / weight
    return out


def seconds_to(target: float, losses: Floats, seconds: Floats) -> float:
    """Time until the smoothed loss [steps] is at most the target; seconds: of each step [steps].

    A curve that ends above it is continued by a straight line at the pace of its last third, which
    flatters it, since curves flatten; at most BEYOND times the steps run.
    """
    below = np.flatnonzero(losses <= target)
    if len(below):
        return float(seconds[: below[0] + 1].sum())
    third = max(len(losses) // 3, 1)
    pace = (losses[-1 - third] - losses[-1]) / third
    most = (BEYOND - 1) * len(losses)
    more = min((losses[-1] - target) / pace, most) if pace > 0 else most
    return float(seconds.sum() + more * seconds[-third:].mean())
