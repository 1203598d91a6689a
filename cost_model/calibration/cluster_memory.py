"""Fitting a cluster's memory: bytes on every rank, and the share held beyond what is allocated."""

from collections.abc import Sequence

import numpy as np

from cost_model.calibration.cluster import OWN_SHARE, ClusterCalibration
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


def fit_memory(
    prior: ClusterCalibration, cluster: ClusterSpec, seen: Sequence[MemoryObservation]
) -> ClusterCalibration:
    """The calibration with its memory figures after the trials.

    A trial that ran says what the allocator held at most; the shipped figures say what lies beyond
    it. A trial that ran out says only that more was needed than there is, and counts where the
    prediction claims less. Of the shipped spread a part is each plan's own, the rest is common
    to all: a share of the peak that every plan holds more or less.
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
    own = OWN_SHARE * before.spread.sigma
    common = before.spread.sigma * float(np.sqrt(1 - OWN_SHARE**2))
    prior_curve = np.diag([1 / FIXED_GIB**2, 1 / common**2])
    for _ in range(8):
        total = (1 + share) * peaks + beyond + fixed * GIB
        active = ran | (total < wanted)
        apart = np.where(active, np.log(wanted / total), 0.0)
        slopes = np.stack([GIB / total, peaks / total], axis=1) * active[:, None]
        curve = slopes.T @ slopes / own**2 + prior_curve
        pull = slopes.T @ apart / own**2 - prior_curve @ np.array([fixed, share - kept])
        step = np.linalg.solve(curve, pull)
        fixed, share = fixed + float(step[0]), max(share + float(step[1]), 0.0)
        if np.abs(step).max() < 1e-6:
            break
    total = (1 + share) * peaks + beyond + fixed * GIB
    left = np.log(wanted / total)[ran]
    variance = (PRIOR_WEIGHT * own**2 + float((left**2).sum())) / (PRIOR_WEIGHT + len(left))
    slopes = np.stack([GIB / total, peaks / total], axis=1)
    unsure = np.einsum("ij,jk,ik->i", slopes, np.linalg.inv(curve), slopes).mean()
    return prior.model_copy(
        update={
            "memory_fixed_gib": prior.memory_fixed_gib + fixed,
            "memory_fragmentation": share,
            "memory_sigma": max(float(np.sqrt(variance + unsure)), LEAST_SIGMA),
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
