"""Fitting a cluster's factors: regularised least squares of log ratios, the most probable values.

Each observation says log(measured / predicted) = 0 within its noise, each prior says that the
logarithm of a factor lies near its expectation; the sum of squares is least at the maximum of the
posterior. The steps are Gauss-Newton's, damped; the covariance is the inverse of its matrix
(Gelman et al., Bayesian Data Analysis, chapter 4: the normal approximation at the mode).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from cost_model.calibration.cluster import ClusterCalibration, as_rows, of_cluster, scaled
from cost_model.calibration.cluster_memory import fit_memory
from cost_model.calibration.coefficients import Coefficients
from cost_model.calibration.observations import (
    SWEEP_NOISE,
    Observations,
    Steps,
    collective_seconds,
    kernel_seconds,
)
from cost_model.plans import Floats
from cost_model.specs import ClusterSpec

ITERATIONS = 12
SMALL_GAIN = 1e-3
"""Share of the sum of squares that another step must gain."""
DIFFERENCE = 0.02
"""Step of the numerical derivative in the logarithm of a factor."""
OUTLIER = 2.5
"""Deviations beyond which a step time counts less (Huber 1964): a neighbour took the machine."""
PRIOR_WEIGHT = 4.0
"""Plans that the prior residual counts as."""
LEAST_RESIDUAL = 0.01


def fit(
    prior: ClusterCalibration,
    cluster: ClusterSpec,
    seen: Observations,
    *,
    n_trials: int,
    shipped: Coefficients | None = None,
    start: ClusterCalibration | None = None,
) -> ClusterCalibration:
    """The calibration after the observations.

    prior: `uncalibrated(cluster)`, or what earlier campaigns left. n_trials: how many trials the
    observations come from. Observations of one campaign are all given at once, with the prior that
    the campaign began with; to give them twice would count them twice. start: where to begin
    looking, such as the calibration before the last trial.
    """
    known = of_cluster(shipped or Coefficients.default(), cluster)
    problem = _Problem(prior, cluster, seen, known)
    x = np.array((start or prior).log_factors)
    residual = prior.residual
    for _ in range(2):  # the scatter decides the weights, and follows from the fit
        problem.residual = residual
        x = _minimise(problem, x)
        residual = _scatter(problem, x, prior)
    problem.residual = residual
    covariance, spread = _certainty(problem, x)
    fitted = prior.model_copy(
        update={
            "log_factors": tuple(float(v) for v in x),
            "covariance": as_rows(covariance),
            "residual": residual,
            "spread": spread if seen.steps else prior.spread,
            "n_trials": prior.n_trials + n_trials,
        }
    )
    return fit_memory(fitted, cluster, seen.memory)


@dataclass
class _Problem:
    """The sum of squares."""

    prior: ClusterCalibration
    cluster: ClusterSpec
    seen: Observations
    shipped: Coefficients
    residual: float = 0.1

    def __post_init__(self) -> None:
        self.centre = np.array(self.prior.log_factors)
        self.steps = Steps(self.cluster, self.seen.steps)
        self.precision = np.linalg.inv(np.array(self.prior.covariance))
        measured = [
            *(s.seconds for s in self.seen.steps),
            *(c.seconds for c in self.seen.collectives),
            *(k.seconds for k in self.seen.kernels),
        ]
        self.measured = np.log(np.array(measured, float))
        self.at_least = np.zeros(len(measured), bool)
        self.at_least[: len(self.seen.steps)] = [s.at_least for s in self.seen.steps]
        self.noise = np.array([s.noise for s in self.seen.steps], float)

    def predicted(self, x: Floats) -> Floats:
        """Logarithms of all predicted times [observations]."""
        known = scaled(self.shipped, x)
        seen = self.seen
        parts = [self.steps.seconds(known)]
        parts.append(collective_seconds(self.cluster, seen.collectives, known))
        if seen.kernels:
            assert seen.kernel_training is not None
            parts.append(kernel_seconds(self.cluster, seen.kernels, seen.kernel_training, known))
        return np.log(np.maximum(np.concatenate(parts), 1e-12))

    def deviations(self) -> Floats:
        """Standard deviation of each log ratio [observations]."""
        steps = np.sqrt(self.noise**2 + self.residual**2)
        rest = len(self.measured) - len(steps)
        return np.concatenate([steps, np.full(rest, SWEEP_NOISE)])

    def misses(self, predicted: Floats) -> Floats:
        """Log ratios measured over predicted; none where a bound is kept [observations]."""
        apart = self.measured - predicted
        missed: Floats = np.where(self.at_least, np.maximum(apart, 0.0), apart)
        return missed

    def weights(self, predicted: Floats) -> Floats:
        """Weights of the squares, outliers reduced, kept bounds without any [observations]."""
        sigma = self.deviations()
        apart = np.abs(self.misses(predicted)) / sigma
        robust = OUTLIER / np.maximum(apart, OUTLIER)
        kept_bound = self.at_least & (self.measured <= predicted)
        return np.where(kept_bound, 0.0, robust) / sigma**2

    def loss(self, x: Floats, predicted: Floats) -> float:
        """Half the weighted sum of squares, priors included."""
        sigma = self.deviations()
        z = np.abs(self.misses(predicted)) / sigma
        huber = np.where(z <= OUTLIER, 0.5 * z**2, OUTLIER * (z - 0.5 * OUTLIER))
        away = x - self.centre
        return float(huber.sum() + 0.5 * away @ self.precision @ away)


def derivative(
    function: Callable[[Floats], Floats],
    x: Floats,
    at_x: Floats,
    columns: Iterable[int] | None = None,
) -> Floats:
    """Of logarithms by the logarithms of the factors [values, factors].

    columns: the factors that matter; the others' derivatives are taken as 0.
    """
    slopes = np.zeros((len(at_x), len(x)))
    for index in range(len(x)) if columns is None else columns:
        moved = x.copy()
        moved[index] += DIFFERENCE
        slopes[:, index] = (function(moved) - at_x) / DIFFERENCE
    return slopes


def _minimise(problem: _Problem, x: Floats) -> Floats:
    damping = 1e-3
    predicted = problem.predicted(x)
    loss = problem.loss(x, predicted)
    matter: list[int] | None = None
    for _ in range(ITERATIONS):
        slopes = derivative(problem.predicted, x, predicted, matter)
        if matter is None:  # a network of a single node, offload where nothing is offloaded
            matter = np.flatnonzero(np.abs(slopes).max(axis=0, initial=0.0) > 0).tolist()
        weights = problem.weights(predicted)
        curve = slopes.T @ (weights[:, None] * slopes) + problem.precision
        pull = slopes.T @ (weights * problem.misses(predicted))
        pull = pull - problem.precision @ (x - problem.centre)
        gained = 0.0
        for _ in range(6):
            step = np.linalg.solve(curve + damping * np.diag(np.diag(curve)), pull)
            tried = x + np.clip(step, -1.0, 1.0)
            found = problem.predicted(tried)
            lower = problem.loss(tried, found)
            if lower <= loss:
                gained, loss, x, predicted = loss - lower, lower, tried, found
                damping = max(damping / 4, 1e-6)
                break
            damping *= 8
        if gained < SMALL_GAIN * max(loss, 0.1):
            break
    return x


def _scatter(problem: _Problem, x: Floats, prior: ClusterCalibration) -> float:
    """Standard deviation of a plan's own part: scaled inverse chi-square around the prior's.

    The measurement's own noise is no property of the plan and is taken off.
    """
    steps = len(problem.noise)
    known = ~problem.at_least[:steps]
    apart = problem.misses(problem.predicted(x))[:steps][known]
    sigma = np.sqrt(problem.noise[known] ** 2 + problem.residual**2)
    apart = np.clip(apart, -OUTLIER * sigma, OUTLIER * sigma)
    squares = np.maximum(apart**2 - problem.noise[known] ** 2, 0.0).sum()
    weight = PRIOR_WEIGHT + known.sum()
    variance = (PRIOR_WEIGHT * prior.residual**2 + squares) / weight
    return float(max(np.sqrt(variance), LEAST_RESIDUAL))


def _certainty(problem: _Problem, x: Floats) -> tuple[Floats, float]:
    """Covariance of the factors, and the spread of plans like those tried."""
    predicted = problem.predicted(x)
    slopes = derivative(problem.predicted, x, predicted)
    weights = problem.weights(predicted)
    covariance = np.linalg.inv(slopes.T @ (weights[:, None] * slopes) + problem.precision)
    covariance = 0.5 * (covariance + covariance.T)
    steps = slopes[: len(problem.noise)]
    if not len(steps):
        return covariance, problem.residual
    unsure = np.einsum("ij,jk,ik->i", steps, covariance, steps).mean()
    return covariance, float(np.sqrt(unsure + problem.residual**2))
