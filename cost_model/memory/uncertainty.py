"""From a predicted peak to an interval and to the probability that a plan fits."""

import math

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients, default_memory_coefficients
from cost_model.memory.capacity import Capacity
from cost_model.plans import Floats
from cost_model.prediction import MemoryPrediction, Need
from cost_model.specs import ClusterSpec

Z90 = 1.6449
"""Standard normal quantile of 95 %: half of a two-sided 90 % interval."""


def interval(
    memory: MemoryPrediction, coefficients: MemoryCoefficients | None = None
) -> tuple[Floats, Floats]:
    """Low and high total bytes between which 90 % of measured runs fall [plans].

    The ratio of measured to predicted memory is taken as log-normal around 1.
    """
    spread = (coefficients or default_memory_coefficients()).spread
    factor = math.exp(Z90 * spread.sigma)
    return memory.total_bytes / factor, memory.total_bytes * factor


def fits_probability(
    memory: MemoryPrediction | Need,
    cluster: ClusterSpec,
    coefficients: MemoryCoefficients | None = None,
) -> Floats:
    """Probability that the worst rank stays within its GPU and the node within its RAM [plans]."""
    spread = (coefficients or default_memory_coefficients()).spread
    there = Capacity.of(cluster, memory)
    gpu = _below(memory.total_bytes, there.gpu, spread.sigma)
    host = _below(memory.host_bytes, there.host, spread.host_sigma)
    probability = gpu * host
    fits: Floats = probability * (memory.nvme_bytes <= there.flash)
    return fits


def _below(predicted: Floats, limit: Floats | float, sigma: float) -> Floats:
    """Probability that a log-normal value around `predicted` stays below `limit`."""
    return _normal_cdf(np.log(limit / np.maximum(predicted, 1.0)) / sigma)


FAR = 6.0
"""Standard deviations beyond which the normal distribution is 0 or 1, to 1e-9."""


def _normal_cdf(z: Floats) -> Floats:
    """Standard normal distribution function, to 7.5e-8 (Abramowitz and Stegun 26.2.17)."""
    out = (z > 0).astype(np.float64)
    near = np.flatnonzero(np.abs(z) < FAR)
    y = z.take(near)
    x = np.abs(y)
    t = 1 / (1 + 0.2316419 * x)
    series = t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    tail = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) * series
    out[near] = np.abs((y > 0) - tail)
    return out
