"""A plan with its prediction as plain data: what is stored, shown and sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from cost_model.plans import Floats, Plan, PlanTable
from cost_model.prediction import MEMORY_PHASES, Prediction
from planner.rules import World

GIB = 2**30
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class CandidateMemory:
    """Bytes of the worst rank against what its GPU has, and of a node's host."""

    total_bytes: float
    total_bytes_low: float
    total_bytes_high: float
    allocated_bytes: float
    reserved_bytes: float
    capacity_bytes: float
    categories: dict[str, float]
    phases: dict[str, float]
    peak_stage: int
    peak_phase: str
    host_bytes: float
    host_capacity_bytes: float
    nvme_bytes: float
    nvme_capacity_bytes: float

    @property
    def headroom_bytes(self) -> float:
        """Bytes left on the worst rank; negative where the plan does not fit."""
        return self.capacity_bytes - self.total_bytes


@dataclass(frozen=True)
class CandidateStep:
    """One optimizer step."""

    seconds: float
    seconds_low: float
    seconds_high: float
    parts: dict[str, float]
    """Exposed seconds by part; they sum to seconds."""
    traffic_bytes: dict[str, float]
    model_flops: float
    mfu: float
    hfu: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float


@dataclass(frozen=True)
class CandidateRun:
    """The whole run, for the token budget; None without one."""

    steps: int
    days: float
    gpu_hours: float
    usd: float | None


@dataclass(frozen=True)
class Difference:
    """A candidate less another one."""

    rank: int
    """The other's rank."""
    seconds: float
    parts: dict[str, float]
    """Exposed seconds by part."""
    total_bytes: float
    plan: dict[str, tuple[Any, Any]]
    """Columns that differ: (the candidate's value, the other's)."""


@dataclass(frozen=True)
class Explanation:
    """Why a candidate ranks where it does."""

    bound_by: str
    """The part of the step that takes the longest."""
    sentences: tuple[str, ...]
    versus_best: Difference | None = None
    versus_next: Difference | None = None


@dataclass(frozen=True)
class Candidate:
    """One plan under consideration."""

    rank: int
    """From 1; 0 where the plan was not ranked."""
    plan: Plan
    gpus: int
    fits: bool
    fits_probability: float
    memory: CandidateMemory
    step: CandidateStep
    run: CandidateRun | None
    usd_per_step: float | None
    why: Explanation | None = None
    cluster: str = ""
    """Which nodes it runs on, where the cluster has groups of different ones."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dict(_ADAPTER.dump_python(self, mode="json"))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Candidate":
        """The inverse of `to_json`."""
        return _ADAPTER.validate_python(data)


_ADAPTER = TypeAdapter(Candidate)


def usd_per_gpu_hour(world: World) -> float | None:
    """The cluster's own price, or the GPU's from the catalogue; None where neither is known."""
    own = world.cluster.usd_per_gpu_hour
    return own if own is not None else world.cluster.node.gpu.usd_per_hour


def run_of(world: World, seconds: float, gpus: int) -> CandidateRun | None:
    """Steps, days and cost of the token budget at a step time."""
    if world.training.tokens is None:
        return None
    steps = -(-world.training.tokens // world.training.tokens_per_step)
    gpu_hours = steps * seconds * gpus / 3600
    price = usd_per_gpu_hour(world)
    usd = None if price is None else gpu_hours * price
    return CandidateRun(steps, steps * seconds / SECONDS_PER_DAY, gpu_hours, usd)


def _row(columns: Mapping[str, Floats], row: int) -> dict[str, float]:
    return {name: float(column[row]) for name, column in columns.items()}


def candidate(
    world: World, table: PlanTable, prediction: Prediction, row: int, rank: int = 0
) -> Candidate:
    """Row `row` of a table and its prediction."""
    memory, step = prediction.memory, prediction.step
    node = world.cluster.node
    plan = table.plan(row)
    gpus = plan.world_size
    seconds = float(step.seconds[row])
    rate = world.training.tokens_per_step / seconds if seconds > 0 else float("inf")
    price = usd_per_gpu_hour(world)
    return Candidate(
        rank=rank,
        plan=plan,
        gpus=gpus,
        fits=bool(prediction.fits[row]),
        fits_probability=float(prediction.fits_probability[row]),
        memory=CandidateMemory(
            total_bytes=float(memory.total_bytes[row]),
            total_bytes_low=float(prediction.total_bytes_low[row]),
            total_bytes_high=float(prediction.total_bytes_high[row]),
            allocated_bytes=float(memory.allocated_bytes[row]),
            reserved_bytes=float(memory.reserved_bytes[row]),
            capacity_bytes=node.gpu.memory_gib * GIB,
            categories=_row(memory.categories, row),
            phases=_row(memory.phases, row),
            peak_stage=int(memory.peak_stage[row]),
            peak_phase=MEMORY_PHASES[int(memory.peak_phase[row])],
            host_bytes=float(memory.host_bytes[row]),
            host_capacity_bytes=node.host_ram_gib * GIB,
            nvme_bytes=float(memory.nvme_bytes[row]),
            nvme_capacity_bytes=0.0 if node.nvme is None else node.nvme.capacity_gib * GIB,
        ),
        step=CandidateStep(
            seconds=seconds,
            seconds_low=float(prediction.seconds_low[row]),
            seconds_high=float(prediction.seconds_high[row]),
            parts=_row(step.parts, row),
            traffic_bytes=_row(step.traffic_bytes, row),
            model_flops=float(np.broadcast_to(step.model_flops, (len(table),))[row]),
            mfu=float(step.mfu[row]),
            hfu=float(step.hfu[row]),
            tokens_per_s=rate,
            tokens_per_s_per_gpu=rate / gpus,
        ),
        run=run_of(world, seconds, gpus),
        usd_per_step=None if price is None else price * gpus * seconds / 3600,
    )
