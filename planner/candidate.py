"""A plan with its prediction as plain data: what is stored, shown and sent."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from cost_model.memory.capacity import Capacity
from cost_model.memory.over_groups import placed
from cost_model.plans import Floats, Ints, Plan, PlanTable
from cost_model.prediction import MEMORY_PHASES, Prediction
from cost_model.specs import ClusterSpec
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
    group: str = ""
    """Where groups of nodes differ: on which the worst rank is."""

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
    group: str = ""
    """Where groups of nodes differ: whose stages the others wait for."""


@dataclass(frozen=True)
class CandidateStages:
    """Pipeline stages that lie on one group of nodes."""

    group: str
    nodes: int
    stages: int
    layers: int


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
    stages_on: tuple[CandidateStages, ...] = ()
    """The stages of each group, in order, where they lie on groups of different nodes."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dict(_ADAPTER.dump_python(self, mode="json"))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Candidate":
        """The inverse of `to_json`."""
        return _ADAPTER.validate_python(data)


_ADAPTER = TypeAdapter(Candidate)


def usd_per_gpu_hour(world: World, plan: Plan) -> float | None:
    """The cluster's own price, or the GPU's from the catalogue; None where neither is known.

    Where the stages lie on groups of different nodes, the mean over the GPUs that are used.
    """
    groups = world.cluster.groups
    if not plan.placement or not groups:
        return _price(world.cluster)
    prices = [_price(group) for group in groups]
    stages = [count for count, _ in plan.placement.groups(plan.pp, world.model.layers)]
    if len(stages) != len(prices):
        return None
    known = [price * s for price, s in zip(prices, stages, strict=True) if price is not None]
    return sum(known) / plan.pp if len(known) == len(prices) else None


def _price(cluster: ClusterSpec) -> float | None:
    own = cluster.usd_per_gpu_hour
    return own if own is not None else cluster.node.gpu.usd_per_hour


def run_of(world: World, seconds: float, gpus: int, price: float | None) -> CandidateRun | None:
    """Steps, days and cost of the token budget at a step time and a price of a GPU's hour."""
    if world.training.tokens is None:
        return None
    steps = -(-world.training.tokens // world.training.tokens_per_step)
    gpu_hours = steps * seconds * gpus / 3600
    usd = None if price is None else gpu_hours * price
    return CandidateRun(steps, steps * seconds / SECONDS_PER_DAY, gpu_hours, usd)


def _group(world: World, number: Ints | None, row: int) -> str:
    """Name of a group of nodes; empty where all nodes count as equal."""
    if number is None or number[row] < 0:
        return ""
    return world.cluster.groups[int(number[row])].name


def _stages_on(world: World, plan: Plan) -> tuple[CandidateStages, ...]:
    groups, layers = world.cluster.groups, world.model.layers
    width = plan.world_size // plan.pp
    return tuple(
        CandidateStages(g.name, stages * width // g.node.gpus_per_node, stages, held)
        for g, (stages, held) in zip(groups, plan.placement.groups(plan.pp, layers), strict=True)
    )


def _rows(columns: Mapping[str, Floats], count: int) -> list[dict[str, float]]:
    """A mapping a row; each column is read once, since some are made when they are read."""
    lists = [np.broadcast_to(column, (count,)).tolist() for column in columns.values()]
    names = tuple(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def _lists(columns: Mapping[str, npt.NDArray[Any]], count: int) -> dict[str, list[Any]]:
    return {name: np.broadcast_to(c, (count,)).tolist() for name, c in columns.items()}


def candidates(
    world: World, table: PlanTable, prediction: Prediction, ranked: int = 0
) -> list[Candidate]:
    """All rows of a table and their predictions. ranked: how many of them, from the first on, have
    their place in a ranking."""
    memory, step, count = prediction.memory, prediction.step, len(table)
    there = Capacity.of(world.cluster, memory)
    capacities = _lists({f.name: np.asarray(getattr(there, f.name)) for f in fields(there)}, count)
    categories, phases = _rows(memory.categories, count), _rows(memory.phases, count)
    parts, traffic = _rows(step.parts, count), _rows(step.traffic_bytes, count)
    of_memory = _lists(
        {
            "total_bytes": memory.total_bytes,
            "total_bytes_low": prediction.total_bytes_low,
            "total_bytes_high": prediction.total_bytes_high,
            "allocated_bytes": memory.allocated_bytes,
            "reserved_bytes": memory.reserved_bytes,
            "peak_stage": memory.peak_stage,
            "host_bytes": memory.host_bytes,
            "nvme_bytes": memory.nvme_bytes,
        },
        count,
    )
    of_step = _lists(
        {
            "seconds": step.seconds,
            "seconds_low": prediction.seconds_low,
            "seconds_high": prediction.seconds_high,
            "model_flops": step.model_flops,
            "mfu": step.mfu,
            "hfu": step.hfu,
        },
        count,
    )
    on_groups = placed(world.cluster, world.model.layers, table)
    peak_phase, fits = memory.peak_phase.tolist(), prediction.fits.tolist()
    chances = prediction.fits_probability.tolist()
    made = []
    for row, plan in enumerate(table.plans()):
        gpus, seconds = plan.world_size, of_step["seconds"][row]
        price = usd_per_gpu_hour(world, plan)
        rate = world.training.tokens_per_step / seconds if seconds > 0 else float("inf")
        made.append(
            Candidate(
                rank=row + 1 if row < ranked else 0,
                plan=plan,
                gpus=gpus,
                fits=fits[row],
                fits_probability=chances[row],
                memory=CandidateMemory(
                    **{name: column[row] for name, column in of_memory.items()},
                    capacity_bytes=capacities["gpu"][row],
                    categories=categories[row],
                    phases=phases[row],
                    peak_phase=MEMORY_PHASES[peak_phase[row]],
                    host_capacity_bytes=capacities["host"][row],
                    nvme_capacity_bytes=capacities["flash"][row],
                    group=_group(world, memory.node_group, row),
                ),
                step=CandidateStep(
                    **{name: column[row] for name, column in of_step.items()},
                    parts=parts[row],
                    traffic_bytes=traffic[row],
                    tokens_per_s=rate,
                    tokens_per_s_per_gpu=rate / gpus,
                    group=_group(world, step.node_group, row),
                ),
                run=run_of(world, seconds, gpus, price),
                usd_per_step=None if price is None else price * gpus * seconds / 3600,
                stages_on=_stages_on(world, plan) if on_groups[row] else (),
            )
        )
    return made


def candidate(
    world: World, table: PlanTable, prediction: Prediction, row: int, rank: int = 0
) -> Candidate:
    """Row `row` of a short table and its prediction."""
    return replace(candidates(world, table, prediction)[row], rank=rank)
