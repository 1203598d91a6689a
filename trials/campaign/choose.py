"""Which plans are tried next: Optuna asks, warm-started from the calibrated ranking.

The study lives in memory and is rebuilt from the state before each ask: ended trials are told with
what they measured and with the bytes they missed, and plans of the ranking with what the calibrated
model says of them, so that the sampler knows good from bad before it has seen ten trials. What may
best improve on the best plan so far is enqueued; in between, the sampler draws for itself, where
the model may be blind.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optuna

from cost_model.plans import Floats, Plan, PlanTable
from planner.request import Resolved
from planner.rules import violations
from planner.search.knobs import WholeSpace
from planner.search.optimize import sampler
from planner.space.fine import HELD, SOLVED
from trials.campaign.ranking import BLAMED, objective_scores, trialable
from trials.campaign.state import CampaignState, CampaignTrial
from trials.campaign.surrogate import Belief, believe, calibrated, likeness

DRAW_EVERY = 3
"""After the first two trials every third is the sampler's own."""
ASKS = 30
"""Draws of the sampler before one of the ranking is taken instead: most break a rule."""
LEAST_HOPE = -2.33
"""Deviations from the best plan below which a drawn one is not worth a trial: its chance of being
better is 1 %."""
SAME_FAULT = 0.8
"""Chance that a plan equal in all that matters fails for the same reason."""
FINE = (*HELD, *SOLVED, "recompute_layers", "first_stage_layers", "last_stage_layers")
"""Knobs that the search solves for each plan."""
GIB = 2**30


def worth(state: CampaignState, belief: Belief, scores: Floats) -> Floats:
    """Expected improvement on the best plan measured, times the chance to run [plans].

    Improvement of the logarithm of the objective; with log normal times it has the closed form of
    Jones, Schonlau and Welch 1998, equation 15. Before any trial the best prediction comes first.
    """
    chance = belief.prediction.fits_probability * survival(state, belief)
    if not belief.measured.any():
        return np.exp(scores.min() - scores) * chance
    best = scores[belief.measured].min()
    deviation = belief.deviation
    z = (best - scores) / deviation
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in z])
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    gain: Floats = deviation * (z * below + density) * chance
    return gain


def survival(state: CampaignState, belief: Belief) -> Floats:
    """Chance that what failed before does not fail again: plans like a failed one are doubtful
    [plans]."""
    failed = [t.plan for t in state.trials if t.outcome in BLAMED]
    if not failed:
        return np.ones(len(belief.mean))
    alike = likeness(belief.table, PlanTable.from_plans(failed)).max(axis=1)
    chance: Floats = 1.0 - SAME_FAULT * alike
    return chance


def proposals(
    resolved: Resolved, state: CampaignState, tried: set[Plan]
) -> Iterator[tuple[Plan, bool]]:
    """Plans worth a trial, the most promising first, and whether the sampler drew them by itself.

    The same for the same state.
    """
    narrowed = trialable(calibrated(resolved, state.calibration))
    plans = [r.plan for r in state.ranking]
    if not plans:
        return
    # what is pending is believed to come out as predicted: its neighbours lose their novelty
    assumed = [t if not t.pending else _as_predicted(t) for t in state.trials if not t.foreign]
    belief = believe(resolved, state.calibration, plans, assumed)
    scores = objective_scores(resolved, belief)
    order = np.argsort(-worth(state, belief, scores), kind="stable")
    queue = [plans[row] for row in order if plans[row] not in tried]
    study, knobs = rebuilt(narrowed, state, belief, scores)
    number = len(state.trials)
    best = _best_score(belief, scores)
    if number >= 2 and number % DRAW_EVERY == DRAW_EVERY - 1:
        drawn = _drawn(narrowed, state, study, knobs, tried, best, assumed)
        if drawn is not None:
            yield drawn, True
    for plan in queue:
        parameters = _parameters(knobs, plan)
        if parameters is not None:
            study.enqueue_trial(parameters, user_attrs={"source": "ranking"})
            knobs.suggest(study.ask())
        yield plan, False


def rebuilt(
    resolved: Resolved, state: CampaignState, belief: Belief, scores: Floats
) -> tuple[optuna.Study, WholeSpace]:
    """The study of a state: what the model says, then what was measured."""
    knobs = WholeSpace(resolved)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            direction="minimize",
            sampler=sampler(state.settings.sampler, state.settings.seed + len(state.trials)),
        )
    finally:
        optuna.logging.set_verbosity(verbosity)
    missing = _missing_gib(resolved, belief)
    by_plan = {r.plan: row for row, r in enumerate(state.ranking)}
    measured = {t.plan for t in state.trials if not t.pending}
    for plan, row in by_plan.items():
        if plan not in measured:
            _tell(study, knobs, plan, float(scores[row]), float(missing[row]), "predicted")
    for trial in state.trials:
        if trial.pending or trial.foreign or trial.proxy is not None:
            continue
        if trial.ran and trial.plan in by_plan:
            row = by_plan[trial.plan]
            _tell(study, knobs, trial.plan, float(scores[row]), float(missing[row]), "measured")
        elif trial.outcome in BLAMED:
            _tell(study, knobs, trial.plan, None, 1.0, "failed")
    return study, knobs


def _tell(
    study: optuna.Study,
    knobs: WholeSpace,
    plan: Plan,
    value: float | None,
    missing_gib: float,
    source: str,
) -> None:
    parameters = _parameters(knobs, plan)
    if parameters is None:
        return
    study.enqueue_trial(parameters, user_attrs={"source": source})
    trial = study.ask()
    knobs.suggest(trial)
    if value is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        trial.set_constraint("missing_gib", missing_gib)
    study.tell(trial, value)


def _parameters(knobs: WholeSpace, plan: Plan) -> dict[str, Any] | None:
    """What the sampler would draw for the plan; its fine knobs are solved for, not drawn, and are
    left at their defaults. None for a plan off the axes even so."""
    usual = Plan()
    return knobs.parameters(plan.model_copy(update={name: getattr(usual, name) for name in FINE}))


def _drawn(
    resolved: Resolved,
    state: CampaignState,
    study: optuna.Study,
    knobs: WholeSpace,
    tried: set[Plan],
    best: float | None,
    trials: Sequence[CampaignTrial],
) -> Plan | None:
    """The first plan that the sampler draws which is legal, likely to fit, new, and hopeful."""
    asked: dict[Plan, None] = {}
    for _ in range(ASKS):
        trial = study.ask()
        plan = knobs.suggest(trial)
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        asked[plan] = None
    new = [p for p in asked if p not in tried]
    batch = resolved.training.global_batch
    legal = [p for p in new if p.global_batch == batch and not violations(resolved.world, p)]
    if not legal:
        return None
    belief = believe(resolved, state.calibration, legal, trials)
    chance = belief.prediction.fits_probability
    hopeful = chance >= resolved.search.min_fits_probability
    if best is not None:
        ahead = (best - objective_scores(resolved, belief)) / belief.deviation
        hopeful &= ahead > LEAST_HOPE
    return next((p for p, good in zip(legal, hopeful, strict=True) if good), None)


def _best_score(belief: Belief, scores: Floats) -> float | None:
    return float(scores[belief.measured].min()) if belief.measured.any() else None


def _missing_gib(resolved: Resolved, belief: Belief) -> Floats:
    """What each plan misses on the worst rank, in GiB: the constraint, kept at zero or less."""
    node = resolved.cluster.node
    total: Floats = belief.prediction.memory.total_bytes / GIB
    return total - node.gpu.memory_gib


def _as_predicted(trial: CampaignTrial) -> CampaignTrial:
    return trial.model_copy(update={"measured_seconds": trial.predicted_seconds, "outcome": "ok"})
