"""What is believed of candidate plans: the calibrated prediction, how sure it is, who may be best.

The logarithm of a plan's step time is taken as its calibrated prediction, plus what the factors are
unsure of (shared by all plans along their derivatives), plus the plan's own part (shared by plans
that are alike). The own part is a Gaussian process over the plan's knobs, conditioned on the
residuals of the trials (Rasmussen and Williams 2006, equations 2.23 and 2.24).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.calibration.cluster import ClusterCalibration, of_cluster, scaled
from cost_model.calibration.cluster_fit import derivative
from cost_model.calibration.observations import StepObservation, step_seconds
from cost_model.plans import Bools, Floats, Ints, Plan, PlanTable
from cost_model.predict import predict
from cost_model.prediction import Prediction
from cost_model.step import step_time
from planner.request import Resolved
from trials.campaign.observe import world_of
from trials.campaign.state import CampaignTrial

DRAWS = 4000
"""Joint draws behind a probability: its standard error is below 0.01."""

KINDS = (
    *("software", "zero_stage", "recompute", "offload_optimizer", "offload_param"),
    *("sequence_parallel", "chunked_loss", "compile", "quantized_weights", "quantized_gradients"),
)
"""Knobs of which another value is another kind of plan."""

SIZES = ("tp", "pp", "vpp", "sp", "cp", "dp", "ep", "micro_batch", "grad_accum", "hpz")
"""Knobs that count by how often they are doubled."""

PROXY_OWN = 0.7
"""Share of a plan's own part that a proxy does not show: the parts that were cut off."""

KIND_LENGTH = 1.0
SIZE_LENGTH = 2.0
"""Doublings after which plans are as unlike as plans of two kinds are."""


@dataclass(frozen=True)
class Belief:
    """Logarithms of step times of some plans."""

    table: PlanTable
    prediction: Prediction
    mean: Floats
    covariance: Floats
    """[plans, plans]"""
    measured: Bools
    """Which plans a trial has measured whole [plans]."""

    @property
    def deviation(self) -> Floats:
        """Standard deviation of each logarithm [plans]."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 1e-12))

    def draws(self, seed: int, count: int = DRAWS) -> Floats:
        """Joint draws of the logarithms [draws, plans]; the same for the same seed."""
        plans = len(self.mean)
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        normal = np.random.default_rng(seed).standard_normal((count, plans))
        return self.mean + normal @ root.T


def calibrated(resolved: Resolved, calibration: ClusterCalibration) -> Resolved:
    """The request under the calibrated coefficients of time and memory."""
    return replace(
        resolved,
        coefficients=calibration.apply(Coefficients.default()),
        memory_coefficients=calibration.apply_memory(),
    )


def believe(
    resolved: Resolved,
    calibration: ClusterCalibration,
    plans: Sequence[Plan],
    trials: Sequence[CampaignTrial],
) -> Belief:
    """What is believed of the plans after the trials; those that ended without a time say nothing
    here."""
    shipped = Coefficients.default()
    table = PlanTable.from_plans(plans)
    world = resolved.world
    narrow = of_cluster(shipped, world.cluster)

    def logs(x: Floats) -> Floats:
        known = scaled(narrow, x)
        return np.log(step_time(world.model, world.cluster, world.training, table, known).seconds)

    x = np.array(calibration.log_factors)
    at_x = logs(x)
    slopes = derivative(logs, x, at_x)
    shared = slopes @ np.array(calibration.covariance) @ slopes.T
    own = calibration.residual**2 * likeness(table, table)

    mean = at_x.copy()
    told = _residuals(resolved, scaled(narrow, x), plans, at_x, trials, calibration.residual)
    measured = np.zeros(len(plans), bool)
    if told is not None:
        rows = told.rows
        inner = own[np.ix_(rows, rows)] + np.diag(told.noise**2)
        gain = np.linalg.solve(inner, own[rows]).T
        mean = mean + gain @ told.values
        own = own - gain @ own[rows]
        # a plan measured whole is known by its measurement, whatever the factors are
        measured[rows[told.whole]] = True
        shared[measured, :] = 0.0
        shared[:, measured] = 0.0
    covariance = shared + own
    prediction = predict(
        world.model,
        world.cluster,
        world.training,
        table,
        calibration.apply(shipped),
        calibration.apply_memory(),
    )
    return Belief(table, prediction, mean, 0.5 * (covariance + covariance.T), measured)


@dataclass(frozen=True)
class _Residuals:
    """What trials measured beyond the calibrated prediction."""

    rows: Ints
    """Which plan each trial verified [trials]."""
    values: Floats
    """log(measured / predicted) of what ran [trials]."""
    noise: Floats
    whole: Bools
    """Whether the plan itself ran, no proxy [trials]."""


def _residuals(
    resolved: Resolved,
    known: Coefficients,
    plans: Sequence[Plan],
    at_x: Floats,
    trials: Sequence[CampaignTrial],
    own: float,
) -> _Residuals | None:
    """Residuals of the trials of these plans; None without any.

    What a plan has of its own a proxy of it has in part.
    """
    row_of = {plan: row for row, plan in enumerate(plans)}
    told = [t for t in trials if t.ran and t.plan in row_of]
    if not told:
        return None
    rows = np.array([row_of[t.plan] for t in told])
    whole = np.array([t.proxy is None for t in told])
    measured = np.array([t.measured_seconds or 1.0 for t in told])
    predicted = at_x[rows]
    if not whole.all():
        steps = [
            StepObservation(w.model, w.training, plan, 1.0)
            for w, plan in (world_of(resolved, t) for t in told)
        ]
        times = np.log(step_seconds(resolved.cluster, steps, known))
        predicted = np.where(whole, predicted, times)
    noise = np.array([t.noise for t in told])
    noise = np.where(whole, noise, np.hypot(noise, PROXY_OWN * own))
    return _Residuals(rows, np.log(measured) - predicted, noise, whole)


def likeness(left: PlanTable, right: PlanTable) -> Floats:
    """Correlation of what two plans have of their own [left, right]: 1 for equal plans."""
    distance = np.zeros((len(left), len(right)))
    for name in KINDS:
        a, b = getattr(left, name), getattr(right, name)
        distance += (a[:, None] != b[None, :]) / KIND_LENGTH**2
    for name in SIZES:
        a, b = np.log2(getattr(left, name)), np.log2(getattr(right, name))
        distance += ((a[:, None] - b[None, :]) / SIZE_LENGTH) ** 2
    alike: Floats = np.exp(-0.5 * distance)
    return alike
