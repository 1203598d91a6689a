"""Searches the bonus weight and the capacity factor for the least predicted time to a loss.

Too small a weight leaves experts unevenly loaded: each step is slow, or drops tokens. Too large a
one pulls the router from its task: more steps are needed. Both lose time.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import optuna
from pydantic import Field

from cost_model.specs.frozen import Frozen
from trials.entropy.bonus import Over
from trials.entropy.cost import StepCost, seconds_to, smoothed
from trials.entropy.proxy import Point, StepSeen

Train = Callable[[Point, int], Iterator[StepSeen]]
"""(point, seed) to its steps; `Proxy.train`, or the same over real trials."""

FIRST_WEIGHTS = (0.0, 0.1)
"""Asked at every capacity before the sampler: no bonus, and the middle of the range."""
ZERO_DECADES = 0.5
"""Draws up to so many decades below the lowest weight stand for no bonus: its limit."""


class SearchSettings(Frozen):
    """How far and how long to look."""

    n_trials: int = Field(default=18, ge=1)
    steps: int = Field(default=200, ge=10)
    """Optimizer steps of a trial that is not pruned."""
    lowest: float = Field(default=1e-3, gt=0)
    highest: float = Field(default=10.0, gt=0)
    capacities: tuple[float, ...] = (0.0, 1.0, 1.25, 1.5)
    over: Over = "mean"
    target_loss: float | None = None
    """None takes what no bonus reaches at the first capacity in three quarters of the steps."""
    seeds: tuple[int, ...] = (1,)
    """Of the runs of each trial, whose mean counts; all trials see the same data."""
    finalists: int = Field(default=4, ge=1)
    """Best points, at least a factor of two apart, that run on more seeds before one is chosen: the
    least of many noisy times is less by luck."""
    final_seeds: tuple[int, ...] = (3, 4, 5)
    pruner: Literal["median", "halving", "none"] = "median"
    ticks: int = Field(default=10, ge=2)
    """How often a trial is compared with others at equal predicted time."""
    seed: int = 0
    """Of the sampler."""


class EntropyTrial(Frozen):
    """One point that was tried."""

    point: Point
    seconds_to_target: float | None
    """Predicted; None where it was pruned."""
    loss: float
    """Smoothed, at its last step."""
    max_over_mean: float
    dropped: float
    specialisation: float | None
    step_seconds: float
    """Mean of the predicted step times."""
    steps: int


class EntropyStudy(Frozen):
    """What the search found."""

    settings: SearchSettings
    target_loss: float
    best: EntropyTrial
    """Of the finalists, over all their seeds."""
    trials: tuple[EntropyTrial, ...]
    finals: tuple[EntropyTrial, ...]
    """The finalists on the further seeds alone."""

    @property
    def pruned(self) -> int:
        """Trials that were ended early."""
        return sum(t.seconds_to_target is None for t in self.trials)


def search(train: Train, cost: StepCost, settings: SearchSettings | None = None) -> EntropyStudy:
    """The best weight and capacity factor. The same settings give the same study."""
    chosen = settings or SearchSettings()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    target = chosen.target_loss
    if target is None:
        first = Point(weight=0.0, capacity_factor=chosen.capacities[0], over=chosen.over)
        shorter = chosen.model_copy(update={"steps": chosen.steps * 3 // 4})
        target = run_point(train, cost, first, shorter).loss
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=chosen.seed, n_startup_trials=len(_first(chosen))),
        pruner=_pruner(chosen),
    )
    for first_guess in _first(chosen):
        study.enqueue_trial(first_guess)
    tried: dict[Point, EntropyTrial] = {}

    def objective(trial: optuna.Trial) -> float:
        capacity = float(trial.suggest_categorical("capacity_factor", chosen.capacities))
        low = chosen.lowest * 10**-ZERO_DECADES
        weight = trial.suggest_float("weight", low, chosen.highest, log=True)
        weight = weight if weight >= chosen.lowest else 0.0
        point = Point(weight=weight, capacity_factor=capacity, over=chosen.over)
        if point not in tried:
            tried[point] = run_point(train, cost, point, chosen, target=target, trial=trial)
        found = tried[point].seconds_to_target
        if found is None:
            raise optuna.TrialPruned
        return found

    study.optimize(objective, n_trials=chosen.n_trials)
    further = chosen.model_copy(update={"seeds": chosen.final_seeds})
    finals = {
        point: run_point(train, cost, point, further, target=target)
        for point in (_finalists(tried, chosen.finalists) if chosen.final_seeds else ())
    }
    best = _best(tried, finals, chosen)
    return EntropyStudy(
        settings=chosen,
        target_loss=target,
        best=best,
        trials=tuple(tried.values()),
        finals=tuple(finals.values()),
    )


def _finalists(tried: dict[Point, EntropyTrial], count: int) -> list[Point]:
    """The best points of which none is within a factor of two of a better one."""
    done = [t for t in tried.values() if t.seconds_to_target is not None]
    picked: list[Point] = []
    for trial in sorted(done, key=lambda t: t.seconds_to_target or 0.0):
        point = trial.point
        near = [p for p in picked if p.capacity_factor == point.capacity_factor]
        if all(max(p.weight, point.weight) > 2 * min(p.weight, point.weight) for p in near):
            picked.append(point)
    return picked[:count]


def _best(
    tried: dict[Point, EntropyTrial], finals: dict[Point, EntropyTrial], settings: SearchSettings
) -> EntropyTrial:
    """The finalist of the least mean time over all seeds, with that time."""
    first, more = len(settings.seeds), len(settings.final_seeds)
    times = {
        point: (first * (tried[point].seconds_to_target or 0.0) + more * (t.seconds_to_target or 0))
        / (first + more)
        for point, t in finals.items()
    } or {p: t.seconds_to_target for p, t in tried.items() if t.seconds_to_target is not None}
    point = min(times, key=lambda p: times[p])
    return tried[point].model_copy(update={"seconds_to_target": times[point]})


def _first(settings: SearchSettings) -> list[dict[str, float]]:
    """Points that every study begins with, as far as its budget goes."""
    least = settings.lowest * 10**-ZERO_DECADES
    return [
        {"capacity_factor": capacity, "weight": weight or least}
        for capacity in settings.capacities
        for weight in FIRST_WEIGHTS
        if weight <= settings.highest
    ][: settings.n_trials]


def _pruner(settings: SearchSettings) -> optuna.pruners.BasePruner:
    if settings.pruner == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=settings.ticks // 3)
    if settings.pruner == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=3)
    return optuna.pruners.NopPruner()


def run_point(
    train: Train,
    cost: StepCost,
    point: Point,
    settings: SearchSettings,
    *,
    target: float | None = None,
    trial: "optuna.Trial | None" = None,
) -> EntropyTrial:
    """Runs one point on all seeds, side by side; ends early where the trial is pruned.

    Without a target the time to it is that of the whole run.
    """
    runs = [train(point, seed) for seed in settings.seeds]
    steps: list[list[StepSeen]] = []
    tick_seconds = settings.steps * float(cost.seconds[0]) / settings.ticks
    elapsed, told = 0.0, 0
    for _ in range(settings.steps):
        steps.append([next(run) for run in runs])
        imbalance = np.array([s.load.max_over_mean for s in steps[-1]])
        elapsed += float(cost.of(point.capacity_factor, imbalance).mean())
        if trial is not None and elapsed >= (told + 1) * tick_seconds:
            told = int(elapsed / tick_seconds)
            losses = np.array([np.mean([s.loss for s in row]) for row in steps])
            trial.report(float(smoothed(losses)[-1]), told)
            if trial.should_prune():
                return _summary(cost, point, steps, None, pruned=True)
            if target is not None and _arrived(steps, target):
                break
    return _summary(cost, point, steps, target, pruned=False)


def _arrived(steps: list[list[StepSeen]], target: float) -> bool:
    """Whether the runs of all seeds are at the target."""
    runs = np.array([[s.loss for s in row] for row in steps]).T
    return all(smoothed(run)[-1] <= target for run in runs)


def _summary(
    cost: StepCost,
    point: Point,
    steps: list[list[StepSeen]],
    target: float | None,
    *,
    pruned: bool,
) -> EntropyTrial:
    losses = np.array([[s.loss for s in row] for row in steps]).T
    imbalance = np.array([[s.load.max_over_mean for s in row] for row in steps]).T
    seconds = cost.of(point.capacity_factor, imbalance)
    curves = [smoothed(run) for run in losses]
    goal = [curve[-1] if target is None else target for curve in curves]
    times = [seconds_to(g, c, s) for g, c, s in zip(goal, curves, seconds, strict=True)]
    last = [s.load for row in steps[-max(len(steps) // 4, 1) :] for s in row]
    known = [x.specialisation for x in last if x.specialisation is not None]
    return EntropyTrial(
        point=point,
        seconds_to_target=None if pruned else float(np.mean(times)),
        loss=float(np.mean([curve[-1] for curve in curves])),
        max_over_mean=float(np.mean([x.max_over_mean for x in last])),
        dropped=float(np.mean([x.dropped for x in last])),
        specialisation=float(np.mean(known)) if known else None,
        step_seconds=float(seconds.mean()),
        steps=len(steps),
    )
