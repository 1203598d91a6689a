"""Memory of a table of plans: the worst stage at the worst moment."""

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients, default_memory_coefficients
from cost_model.memory.footprint import (
    MOMENTS,
    PHASE_OF_MOMENT,
    Footprint,
    footprint,
)
from cost_model.memory.host import host_bytes
from cost_model.memory.layout import Stages, candidate_stages, layers_in_flight
from cost_model.memory.terms import Terms, terms
from cost_model.plans import Floats, Ints, PlanTable
from cost_model.prediction import MEMORY_CATEGORIES, MEMORY_PHASES, MemoryPrediction
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec

BLOCK = 16_384
"""Plans evaluated at once, so that the columns of a block stay in the cache."""


def memory(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: MemoryCoefficients | None = None,
) -> MemoryPrediction:
    """GPU bytes of the worst rank of each plan, and host and NVMe bytes of a node."""
    known = coefficients or default_memory_coefficients()
    if len(table) <= BLOCK:
        return _block(model, cluster, training, table, known)
    blocks = [
        _block(model, cluster, training, table.take(slice(start, start + BLOCK)), known)
        for start in range(0, len(table), BLOCK)
    ]
    return _joined(blocks)


def moment_totals(found: Footprint, shared: Terms) -> tuple[list[Floats], list[Floats]]:
    """Allocated bytes and fragmentation at each moment [moments][plans]."""
    static: Floats = sum(found.static.values(), np.zeros(1))
    allocated, fragmentation = [], []
    for moment, parts in enumerate(found.moments):
        extra: Floats = sum(parts.values(), np.zeros(1))
        allocated.append(extra if moment == 0 else static + extra)
        fragmentation.append(shared.fragmentation * found.dynamic[moment])
    return allocated, fragmentation


def _block(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: MemoryCoefficients,
) -> MemoryPrediction:
    length = len(table)
    shared = terms(coefficients, model, training, table)
    peak = np.full(length, -1.0)
    phases = {name: np.zeros(length) for name in MEMORY_PHASES}
    categories = {name: np.zeros(length) for name in MEMORY_CATEGORIES}
    peak_stage = np.zeros(length, np.int64)
    peak_phase = np.zeros(length, np.int64)
    host = np.zeros(length)
    nvme = np.zeros(length)
    checkpoints = np.zeros(length)
    for stages in candidate_stages(model, table):
        found = footprint(model, training, table, shared, stages)
        allocated, fragmentation = moment_totals(found, shared)
        held = [a + f for a, f in zip(allocated, fragmentation, strict=True)]
        for moment in range(len(MOMENTS)):
            phase = MEMORY_PHASES[PHASE_OF_MOMENT[moment]]
            np.maximum(phases[phase], held[moment], out=phases[phase])
            better = held[moment] > peak
            if not better.any():
                continue
            np.copyto(peak, held[moment], where=better)
            np.copyto(peak_stage, stages.index, where=better)
            np.copyto(peak_phase, PHASE_OF_MOMENT[moment], where=better)
            _take(categories, found, moment, fragmentation[moment], better)
        np.maximum(host, found.host, out=host)
        np.maximum(nvme, found.nvme, out=nvme)
        if table.cpu_checkpointing.any():
            np.maximum(checkpoints, _checkpoints(model, table, training, stages), out=checkpoints)
    categories["framework"] = shared.framework
    phases = {name: value + shared.framework for name, value in phases.items()}
    ranks = np.minimum(table.world_size, cluster.node.gpus_per_node).astype(np.float64)
    return MemoryPrediction(
        allocated_bytes=peak - categories["fragmentation"],
        reserved_bytes=peak,
        total_bytes=peak + shared.framework,
        peak_stage=peak_stage,
        peak_phase=peak_phase,
        categories=categories,
        phases=phases,
        host_bytes=host_bytes(coefficients, model, training, table, host, checkpoints, ranks),
        nvme_bytes=nvme * ranks,
    )


def _take(
    categories: dict[str, Floats],
    found: Footprint,
    moment: int,
    fragmentation: Floats,
    where: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> None:
    """Writes the categories of a moment where it is the highest so far."""
    static = found.static if moment else {}
    parts = found.moments[moment]
    for name in MEMORY_CATEGORIES:
        if name == "framework":
            continue
        if name == "fragmentation":
            np.copyto(categories[name], fragmentation, where=where)
            continue
        value: Floats | float = 0.0
        if name in static:
            value = static[name] + parts[name] if name in parts else static[name]
        elif name in parts:
            value = parts[name]
        np.copyto(categories[name], value, where=where)


def _checkpoints(
    model: ModelSpec, table: PlanTable, training: TrainingSpec, stages: Stages
) -> Floats:
    """Layer inputs that cpu_checkpointing keeps on the host."""
    tokens = table.micro_batch * (training.seq_len / (table.sp * table.cp))
    shard = np.where(table.partition_activations, table.tp, 1)
    layers: Floats = sum(stages.layers, np.zeros(1))
    kept = 2.0 * model.hidden * tokens / shard * layers * layers_in_flight(table, stages.index)
    return np.where(table.cpu_checkpointing, kept, 0.0)


def _joined(blocks: list[MemoryPrediction]) -> MemoryPrediction:
    """One prediction of consecutive blocks."""

    def floats(name: str) -> Floats:
        return np.concatenate([getattr(b, name) for b in blocks])

    def ints(name: str) -> Ints:
        return np.concatenate([getattr(b, name) for b in blocks])

    return MemoryPrediction(
        allocated_bytes=floats("allocated_bytes"),
        reserved_bytes=floats("reserved_bytes"),
        total_bytes=floats("total_bytes"),
        peak_stage=ints("peak_stage"),
        peak_phase=ints("peak_phase"),
        categories={
            name: np.concatenate([b.categories[name] for b in blocks]) for name in MEMORY_CATEGORIES
        },
        phases={name: np.concatenate([b.phases[name] for b in blocks]) for name in MEMORY_PHASES},
        host_bytes=floats("host_bytes"),
        nvme_bytes=floats("nvme_bytes"),
    )
