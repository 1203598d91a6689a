"""The calibrated ranking: the whole space again, and the plans in it that may be the best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_model.calibration.cluster import ClusterCalibration
from cost_model.plans import Floats, Plan
from planner.objectives import Scores, keys
from planner.ranking import rank
from planner.request import Resolved
from trials.campaign.state import CampaignSettings, CampaignTrial, RankedPlan
from trials.campaign.surrogate import Belief, believe, calibrated
from trials.preflight import SUPPORTED

KEPT = 40
"""Plans that a state holds."""
LOOKED_AT = 400
"""Plans of the whole ranking among which kinds are told apart."""
Z90 = 1.6449
"""Standard normal quantile of 95 %."""

KIND = (
    *("software", "tp", "pp", "sp", "cp", "ep", "zero_stage", "recompute"),
    *("offload_optimizer", "offload_param"),
)
"""Columns that make two plans different in kind; of each kind the fastest may be the best."""

BLAMED = {
    *("out_of_gpu_memory", "out_of_host_memory", "refused", "not_a_number"),
    *("crashed", "hang", "collective_timeout"),
}
"""Ends of a trial after which its plan is no candidate any more."""


@dataclass(frozen=True)
class Reranked:
    """The plans that may be the best, and who is."""

    ranking: tuple[RankedPlan, ...]
    best: Plan | None
    confidence: float


def trialable(resolved: Resolved) -> Resolved:
    """The request narrowed to the software that trials run."""
    search = resolved.search
    software = tuple(s for s in search.software if s in SUPPORTED)
    return replace(
        resolved, search=search.model_copy(update={"software": software, "keep": LOOKED_AT})
    )


def candidates(resolved: Resolved, calibration: ClusterCalibration) -> list[Plan]:
    """The first plans of the whole calibrated ranking, then the first of every other kind."""
    narrowed = calibrated(trialable(resolved), calibration)
    if not narrowed.search.software:
        return []
    table = rank(narrowed).table
    first = list(range(min(len(table), KEPT // 2)))
    kinds = np.stack([getattr(table, name) for name in KIND], axis=1)
    seen = {tuple(kinds[row]) for row in first}
    for row in range(len(first), len(table)):
        kind = tuple(kinds[row])
        if kind not in seen:
            seen.add(kind)
            first.append(row)
        if len(first) == KEPT:
            break
    return [table.plan(row) for row in first]


def rerank(
    resolved: Resolved,
    settings: CampaignSettings,
    calibration: ClusterCalibration,
    trials: Sequence[CampaignTrial],
) -> Reranked:
    """The whole space under the calibration, corrected by what the trials found."""
    failed = {t.plan for t in trials if t.proxy is None and t.outcome in BLAMED}
    plans = [p for p in candidates(resolved, calibration) if p not in failed]
    tried = [t.plan for t in trials if t.ran and t.proxy is None and not t.foreign]
    plans += [p for p in dict.fromkeys(tried) if p not in plans]
    if not plans:
        return Reranked((), None, 0.0)
    usable = [t for t in trials if not t.foreign]
    belief = believe(resolved, calibration, plans, usable)
    scores = objective_scores(resolved, belief)
    draws = belief.draws(settings.seed) + (scores - belief.mean)
    fastest = draws.argmin(axis=1)
    shares = np.bincount(fastest, minlength=len(plans)) / len(draws)
    verified = np.flatnonzero(belief.measured)
    chosen = _first(scores, verified if len(verified) else np.arange(len(plans)))
    limit = draws.min(axis=1) + np.log1p(settings.tolerance)
    confidence = float((draws[:, chosen] <= limit).mean())
    order = np.argsort(scores, kind="stable")
    counts = {p: sum(t.plan == p and not t.pending for t in trials) for p in plans}
    return Reranked(
        tuple(
            _ranked(belief, row, plans[row], float(shares[row]), counts[plans[row]])
            for row in order.tolist()
        ),
        plans[chosen],
        confidence,
    )


def objective_scores(resolved: Resolved, belief: Belief) -> Floats:
    """Logarithm of what the objective wants low, plan by plan, under the believed step times."""
    table, prediction = belief.table, belief.prediction
    believed = Scores(
        np.exp(belief.mean),
        prediction.memory.total_bytes,
        prediction.memory.host_bytes,
        prediction.fits_probability,
    )
    search = resolved.search
    first = keys(search, table, believed)[0].astype(float)
    if search.objective == "cost":
        return np.log(first)
    if search.objective in ("fewest_gpus", "largest_micro_batch"):
        return 100.0 * first + belief.mean  # the count decides, the time between equal counts
    return belief.mean


def _first(scores: Floats, rows: np.ndarray) -> int:
    return int(rows[np.argmin(scores[rows])])


def _ranked(belief: Belief, row: int, plan: Plan, share: float, count: int) -> RankedPlan:
    seconds = float(np.exp(belief.mean[row]))
    width = float(np.exp(Z90 * belief.deviation[row]))
    return RankedPlan(
        plan=plan,
        seconds=seconds,
        seconds_low=seconds / width,
        seconds_high=seconds * width,
        fits_probability=float(belief.prediction.fits_probability[row]),
        total_bytes=float(belief.prediction.memory.total_bytes[row]),
        best_probability=share,
        trials=count,
    )
