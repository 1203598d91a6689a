"""Optuna for what is dear or continuous: an ask-and-tell loop over measured or modelled plans."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cost_model.plans import Plan, PlanTable
from planner.ranking import evaluate, missing_bytes, scores_of
from planner.request.request import Resolved
from planner.rules import violations
from planner.search.knobs import Knobs, WholeSpace

if TYPE_CHECKING:  # a second to load, which a search does without
    import optuna

SamplerName = Literal["tpe", "nsga2", "random", "qmc"]


@dataclass(frozen=True)
class Measurement:
    """What one evaluation of a plan gave."""

    seconds: float
    """Step time, to be low."""
    constraints: dict[str, float]
    """Kept where zero or less: bytes missed, rules broken."""

    @property
    def feasible(self) -> bool:
        """Whether every constraint is kept."""
        return all(value <= 0 for value in self.constraints.values())


Measure = Callable[[Plan], Measurement | None]
"""Runs or predicts a plan; None where it gave no time at all (it died)."""


@dataclass(frozen=True)
class Evaluation:
    """One evaluated plan, in the order of evaluation."""

    number: int
    plan: Plan
    measurement: Measurement | None


@dataclass(frozen=True)
class Outcome:
    """All evaluations of a study."""

    evaluations: tuple[Evaluation, ...]

    @property
    def best(self) -> Evaluation | None:
        """The fastest plan that kept every constraint."""
        return self.best_after(len(self.evaluations))

    def best_after(self, count: int) -> Evaluation | None:
        """The same among the first `count` evaluations."""
        found = [e for e in self.evaluations[:count] if e.measurement and e.measurement.feasible]
        return min(found, key=_seconds, default=None)


def _seconds(evaluation: Evaluation) -> float:
    return evaluation.measurement.seconds if evaluation.measurement else float("inf")


def sampler(name: SamplerName, seed: int | None = None) -> "optuna.samplers.BaseSampler":
    """The sampler of that name; all take constraints, TPE models each branch of the space apart."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match name:
            case "tpe":
                return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True)
            case "nsga2":
                return optuna.samplers.NSGAIISampler(seed=seed, population_size=20)
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
            case "qmc":
                return optuna.samplers.QMCSampler(seed=seed, warn_independent_sampling=False)


def modelled(resolved: Resolved) -> Measure:
    """The analytic model as the measure: rules and memory are constraints."""

    def measure(plan: Plan) -> Measurement:
        world = resolved.world
        prediction = evaluate(world, PlanTable.from_plans([plan]))
        missing = float(missing_bytes(world, scores_of(world, prediction))[0])
        unlikely = resolved.search.min_fits_probability - prediction.fits_probability[0]
        return Measurement(
            float(prediction.step.seconds[0]),
            {
                "rules": float(len(violations(world, plan))),
                "missing_gib": missing / 2**30,
                "unlikely": float(unlikely),
            },
        )

    return measure


def optimize(
    resolved: Resolved,
    *,
    measure: Measure | None = None,
    knobs: Knobs | None = None,
    start: Sequence[Plan] = (),
    evaluations: int = 100,
    sampler_name: SamplerName = "tpe",
    seed: int | None = 0,
) -> Outcome:
    """Evaluates plans one after the other, each drawn in the light of those before.

    measure: what a plan is worth; the analytic model where not given. knobs: what may vary; the
    whole space of the request where not given. start: plans to evaluate first, such as the top of
    the exact ranking (the warm start); those off the axes are evaluated as they are. The study is
    held in memory and never evaluates a plan twice.
    """
    from optuna.trial import TrialState

    measure = measure or modelled(resolved)
    knobs = knobs or WholeSpace(resolved)
    known: dict[str, Measurement | None] = {}
    done: list[Evaluation] = []

    def evaluated(plan: Plan) -> Measurement | None:
        key = plan.model_dump_json()
        if key not in known:
            known[key] = measure(plan)
            done.append(Evaluation(len(done), plan, known[key]))
        return known[key]

    study = _quiet_study(sampler(sampler_name, seed))

    def ask() -> None:
        trial = study.ask()
        found = evaluated(knobs.suggest(trial))
        if found is None:
            study.tell(trial, state=TrialState.FAIL)
            return
        for name, value in found.constraints.items():
            trial.set_constraint(name, value)
        study.tell(trial, found.seconds)

    for rank, plan in enumerate(start[:evaluations]):
        drawn = knobs.parameters(plan)
        if drawn is None:
            evaluated(plan)
        else:
            study.enqueue_trial(drawn, user_attrs={"model_rank": rank + 1})
            ask()
    for _ in range(4 * evaluations):
        if len(done) >= evaluations:
            break
        ask()
    return Outcome(tuple(done))


def _quiet_study(chosen: "optuna.samplers.BaseSampler") -> "optuna.Study":
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(direction="minimize", sampler=chosen)
    finally:
        optuna.logging.set_verbosity(verbosity)
