"""Pooling what two series of trials on one kind of cluster have taught, each without the other."""

import numpy as np

from cost_model.calibration.cluster import ClusterCalibration, as_rows


def pooled(
    kept: ClusterCalibration, before: ClusterCalibration, after: ClusterCalibration
) -> ClusterCalibration:
    """`kept` with the evidence of the trials that led from `before` to `after`.

    kept: what is known meanwhile, from other trials. Factors: normal approximations of
    independent evidence multiply, so that precisions add, and precision times mean does
    (Gelman et al., Bayesian Data Analysis, section 3.5): what the trials added to `before` is added
    to `kept`. Scatter and memory, which are single figures, are means weighted by trials. Where the
    sum is no covariance, since `kept` lost what `before` rests on, `after` itself.
    """
    new = after.n_trials - before.n_trials
    if new <= 0:
        return kept
    precision, weighted = _information(kept)
    for one, sign in ((after, 1.0), (before, -1.0)):
        own, moved = _information(one)
        precision, weighted = precision + sign * own, weighted + sign * moved
    precision = 0.5 * (precision + precision.T)
    if np.linalg.eigvalsh(precision).min() <= 0:
        return after
    covariance = np.linalg.inv(precision)
    old = max(kept.n_trials, 0)

    def mean(name: str) -> float | None:
        pair = (getattr(kept, name), old), (getattr(after, name), new)
        told = [(value, trials) for value, trials in pair if value is not None]
        if not told:
            return None
        return float(sum(v * n for v, n in told) / max(sum(n for _, n in told), 1))

    def root_mean_square(name: str) -> float:
        mine, theirs = getattr(kept, name), getattr(after, name)
        return float(np.sqrt((old * mine**2 + new * theirs**2) / (old + new)))

    return kept.model_copy(
        update={
            "log_factors": tuple(float(v) for v in covariance @ weighted),
            "covariance": as_rows(0.5 * (covariance + covariance.T)),
            "residual": root_mean_square("residual"),
            "spread": root_mean_square("spread"),
            "memory_fixed_gib": mean("memory_fixed_gib"),
            "memory_fragmentation": mean("memory_fragmentation"),
            "memory_sigma": mean("memory_sigma"),
            "n_trials": old + new,
        }
    )


def _information(one: ClusterCalibration) -> tuple[np.ndarray, np.ndarray]:
    """Precision, and precision times mean."""
    precision = np.linalg.inv(np.array(one.covariance))
    return precision, precision @ np.array(one.log_factors)
