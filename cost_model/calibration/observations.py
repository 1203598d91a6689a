"""What trials measured, as the fit of a cluster's calibration reads it, with what is predicted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cost_model.calibration.coefficients import Coefficients
from cost_model.collectives import (
    Topology,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    point_to_point_seconds,
)
from cost_model.compute import Rates
from cost_model.compute.gemm import gemm_seconds, stack
from cost_model.plans import Floats, Plan, PlanTable
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec
from cost_model.step import step_time

STEP_NOISE = 0.02
"""Log-normal standard deviation of a median step time, at least."""

SWEEP_NOISE = 0.8
"""The same of one point of a sweep: a kernel or collective alone runs otherwise than in training,
and twenty points of one sweep must not outweigh the steps."""


@dataclass(frozen=True)
class StepObservation:
    """The step time of one plan."""

    model: ModelSpec
    training: TrainingSpec
    plan: Plan
    seconds: float
    at_least: bool = False
    """The step took longer than `seconds`; how long is unknown (a trial that ran out of time)."""
    noise: float = STEP_NOISE
    """Log-normal standard deviation of the measurement itself."""


@dataclass(frozen=True)
class CollectiveObservation:
    """One point of a bandwidth sweep."""

    kind: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p"]
    ranks: int
    stride: int
    """Distance between neighbouring ranks of the group."""
    n_bytes: int
    """Whole payload of a rank."""
    seconds: float


@dataclass(frozen=True)
class KernelObservation:
    """One kernel that ran alone: a product of [m, k] and [k, n], or a pass over memory."""

    kind: Literal["gemm", "stream"]
    seconds: float
    m: int = 0
    n: int = 0
    k: int = 0
    n_bytes: int = 0
    """Read and written (stream)."""


@dataclass(frozen=True)
class MemoryObservation:
    """Bytes of the worst rank of one plan."""

    model: ModelSpec
    training: TrainingSpec
    plan: Plan
    allocated_bytes: float | None
    """Peak of the allocator; None where the trial died of it: then more than the GPU has."""


@dataclass(frozen=True)
class Observations:
    """Everything that a fit reads, of one cluster."""

    steps: tuple[StepObservation, ...] = ()
    collectives: tuple[CollectiveObservation, ...] = ()
    kernels: tuple[KernelObservation, ...] = ()
    kernel_training: TrainingSpec | None = None
    """Precision of the kernels; needed where there are any."""
    memory: tuple[MemoryObservation, ...] = ()


class Steps:
    """Plans of step observations as columns: those of one model and training share a table."""

    def __init__(self, cluster: ClusterSpec, steps: Sequence[StepObservation]) -> None:
        self.cluster = cluster
        self.count = len(steps)
        worlds: list[tuple[ModelSpec, TrainingSpec, list[int]]] = []
        for index, seen in enumerate(steps):
            for model, training, members in worlds:
                if model == seen.model and training == seen.training:
                    members.append(index)
                    break
            else:
                worlds.append((seen.model, seen.training, [index]))
        self.worlds = [
            (model, training, members, PlanTable.from_plans(steps[i].plan for i in members))
            for model, training, members in worlds
        ]

    def seconds(self, coefficients: Coefficients) -> Floats:
        """Predicted step time of each observation [observations]."""
        out = np.empty(self.count)
        for model, training, members, table in self.worlds:
            found = step_time(model, self.cluster, training, table, coefficients)
            out[members] = found.seconds
        return out


def step_seconds(
    cluster: ClusterSpec, steps: Sequence[StepObservation], coefficients: Coefficients
) -> Floats:
    """Predicted step time of each observation [observations]."""
    return Steps(cluster, steps).seconds(coefficients)


def collective_seconds(
    cluster: ClusterSpec, sweep: Sequence[CollectiveObservation], coefficients: Coefficients
) -> Floats:
    """Predicted time of each point [points]."""
    topology = Topology.of(cluster, coefficients)
    out = np.empty(len(sweep))
    for index, seen in enumerate(sweep):
        payload = np.array([float(seen.n_bytes)])
        size, stride = np.array([seen.ranks]), np.array([seen.stride])
        match seen.kind:
            case "all_reduce":
                one = all_reduce_seconds(topology, payload, size, stride)
            case "all_gather" | "reduce_scatter":
                one = all_gather_seconds(topology, payload, size, stride)
            case "all_to_all":
                one = all_to_all_seconds(topology, payload, size, stride)
            case "p2p":
                one = point_to_point_seconds(topology, payload, stride)
        out[index] = one[0]
    return out


def kernel_seconds(
    cluster: ClusterSpec,
    kernels: Sequence[KernelObservation],
    training: TrainingSpec,
    coefficients: Coefficients,
) -> Floats:
    """Predicted time of each kernel [kernels]."""
    rates = Rates.of(cluster.node.gpu, training, coefficients)
    shape = np.array([[k.m, k.n, k.k] for k in kernels], float).reshape(-1, 3)
    one = np.ones(len(kernels))
    products = stack([(shape[:, 0], shape[:, 1], shape[:, 2], one)], len(kernels))
    gemms = gemm_seconds(products, rates, rates.linear_flops)[0]
    moved = np.array([float(k.n_bytes) for k in kernels])
    streams = moved / rates.bytes_per_s + rates.gpu.kernel_overhead_us * 1e-6
    return np.where([k.kind == "gemm" for k in kernels], gemms, streams)
