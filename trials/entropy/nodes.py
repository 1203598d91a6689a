"""The search over real trials: the model that is meant, on an executor's ranks."""

import time
from collections.abc import Iterator

from trials.entropy.proxy import Point, StepSeen
from trials.entropy.study import Train
from trials.executors.protocol import Executor, State
from trials.options import RouterBonus
from trials.trial_file import TrialFile


class TrialFailed(RuntimeError):  # noqa: N818
    """A trial of the search did not train; the message is its outcome."""


def trials_on(executor: Executor, template: TrialFile, *, poll_s: float = 0.2) -> Train:
    """Trains by trials like the template, whose steps must be as many as the search's.

    A trial runs whole before its steps are looked at: pruning saves nothing here, but the
    template's `step_limit_s` ends slow ones. Each point is a trial of its own name, so a search
    that is started again finds the trials it already ran.
    """

    def train(point: Point, seed: int) -> Iterator[StepSeen]:
        trial = _trial(template, point, seed)
        executor.submit(trial)
        while executor.state(trial.trial_id) is not State.ENDED:
            time.sleep(poll_s)
        result = executor.result(trial.trial_id)
        if result is None or result.outcome.kind != "ok":
            why = "no result" if result is None else result.outcome.message
            raise TrialFailed(f"{trial.trial_id}: {why}")
        for i, loss in enumerate(result.losses):
            loads = [steps[i].experts for r in result.ranks if (steps := (*r.warmup, *r.steps))]
            busiest = max((x for x in loads if x is not None), key=lambda x: x.max_over_mean)
            yield StepSeen(loss, busiest)

    return train


def _trial(template: TrialFile, point: Point, seed: int) -> TrialFile:
    name = f"{template.trial_id}-w{point.weight:.6g}-c{point.capacity_factor:g}-s{seed}"
    return template.model_copy(
        update={
            "trial_id": name,
            "seed": seed,
            "plan": template.plan.model_copy(update={"capacity_factor": point.capacity_factor}),
            "router_bonus": RouterBonus(weight=point.weight, over=point.over),
        }
    )
