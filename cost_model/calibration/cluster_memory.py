"""Fitting a cluster's memory: bytes on every rank, and the share held beyond what is allocated."""

from collections.abc import Sequence

import numpy as np

from cost_model.calibration.cluster import ClusterCalibration
from cost_model.calibration.memory import GIB, MemoryCoefficients
from cost_model.calibration.observations import MemoryObservation
from cost_model.memory import memory
from cost_model.plans import Floats, PlanTable
from cost_model.specs import ClusterSpec

PRIOR_WEIGHT = 4.0
"""Trials that the shipped spread counts as."""
LEAST_SIGMA = 0.01
FIXED_GIB = 0.3
"""Standard deviation of the bytes that every rank may hold beyond the shipped figures."""
FRAGMENTATION = 0.04
"""Standard deviation of the share of the peak around the shipped one."""


def fit_memory(
    prior: ClusterCalibration, cluster: ClusterSpec, seen: Sequence[MemoryObservation]
) -> ClusterCalibration:
    """The calibration with its memory figures after the trials.

    A trial that ran says what the allocator held at most; the shipped figures say what lies beyond
    it. A trial that ran out says only that more was needed than there is, and counts where the
    prediction claims less.
    """
    if not seen:
        return prior
    before = prior.apply_memory()
    peaks, beyond = _predicted(cluster, seen, before)
    capacity = cluster.node.gpu.memory_gib * GIB
    ran = np.array([one.allocated_bytes is not None for one in seen])
    measured = np.array([one.allocated_bytes or 0.0 for one in seen])
    kept = before.fragmentation
    wanted = np.where(ran, (1 + kept) * measured + beyond, capacity)
    fixed, share = 0.0, kept
    sigma = before.spread.sigma
    for _ in range(8):
        total = (1 + share) * peaks + beyond + fixed * GIB
        active = ran | (total < wanted)
        apart = np.where(active, np.log(wanted / total), 0.0)
        slopes = np.stack([GIB / total, peaks / total], axis=1) * active[:, None]
        curve = slopes.T @ slopes / sigma**2
        curve += np.diag([1 / FIXED_GIB**2, 1 / FRAGMENTATION**2])
        pull = slopes.T @ apart / sigma**2
        pull -= np.array([fixed / FIXED_GIB**2, (share - kept) / FRAGMENTATION**2])
        step = np.linalg.solve(curve, pull)
        fixed, share = fixed + float(step[0]), max(share + float(step[1]), 0.0)
        if np.abs(step).max() < 1e-6:
            break
    left = np.log(wanted / ((1 + share) * peaks + beyond + fixed * GIB))[ran]
    variance = (PRIOR_WEIGHT * sigma**2 + float((left**2).sum())) / (PRIOR_WEIGHT + len(left))
    return prior.model_copy(
        update={
            "memory_fixed_gib": prior.memory_fixed_gib + fixed,
            "memory_fragmentation": share,
            "memory_sigma": max(float(np.sqrt(variance)), LEAST_SIGMA),
        }
    )


def _predicted(
    cluster: ClusterSpec, seen: Sequence[MemoryObservation], coefficients: MemoryCoefficients
) -> tuple[Floats, Floats]:
    """Allocated peak of each observation, and what lies outside the allocator [observations]."""
    peaks, beyond = np.empty(len(seen)), np.empty(len(seen))
    for index, one in enumerate(seen):
        table = PlanTable.from_plans([one.plan])
        held = memory(one.model, cluster, one.training, table, coefficients)
        peaks[index] = held.allocated_bytes[0]
        beyond[index] = held.categories["framework"][0]
    return peaks, beyond
