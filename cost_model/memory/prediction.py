"""Memory of a table of plans: the worst stage at the worst moment."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import GIB, MemoryCoefficients, default_memory_coefficients
from cost_model.memory.beside import beside
from cost_model.memory.footprint import MOMENTS, PHASE_OF_MOMENT, Footprint, footprint
from cost_model.memory.framework import framework_bytes
from cost_model.memory.groups import group_rows
from cost_model.memory.layout import candidate_stages
from cost_model.memory.on_demand import OnDemand
from cost_model.memory.over_groups import memory_over_groups
from cost_model.memory.oversized import stays
from cost_model.memory.sharding import Sharding, placed, sharding
from cost_model.memory.sums import Plans, Sum
from cost_model.memory.work import StageWork, joined, plan_work, stage_work
from cost_model.plans import BLOCK, Floats, Ints, PlanTable
from cost_model.prediction import MEMORY_CATEGORIES, MEMORY_PHASES, MemoryPrediction, Need
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec


def memory(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: MemoryCoefficients | None = None,
) -> MemoryPrediction:
    """GPU bytes of the worst rank of each plan, and host and NVMe bytes of a node.

    Where the cluster has groups of different nodes, the worst rank of a plan with a placement is
    the one that comes nearest to what its own GPU has.
    """
    if cluster.groups or table.placement.any():
        return memory_over_groups(
            cluster,
            model.layers,
            table,
            lambda own, few, number: _memory(model, own, training, few, coefficients, number),
        )
    return _memory(model, cluster, training, table, coefficients, None)


def need(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: MemoryCoefficients | None = None,
) -> Need:
    """The same figures as `memory`, as far as they tell whether a plan fits: all that a search
    reads of most plans."""
    if cluster.groups or table.placement.any():
        whole = memory(model, cluster, training, table, coefficients)
        return Need(whole.total_bytes, whole.host_bytes, whole.nvme_bytes, whole.node_group)
    known = (coefficients or default_memory_coefficients()).in_stack(training.stack)
    blocks = [
        _need(model, cluster, training, table.take(slice(start, start + BLOCK)), known)
        for start in range(0, max(len(table), 1), BLOCK)
    ]
    return Need(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def _need(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: MemoryCoefficients,
) -> tuple[Floats, Floats, Floats]:
    works = _works(coefficients, model, training, table, None)
    states = sharding(coefficients, model, training, table)
    room = tensor_bytes(coefficients, cluster)
    stages = [(work, placed(table, states, work, works.of_plan)) for work in works.stages]
    peak = np.zeros(len(table))
    for work, plans in stages:
        for value in _footprint(states, work, plans, room).allocated(plans):
            np.maximum(peak, value, out=peak)
    total = (1 + coefficients.fragmentation) * peak + framework_bytes(coefficients, table)
    host, nvme = beside(coefficients, model, cluster, training, table, states, stages)
    return total, host, nvme


def _memory(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: MemoryCoefficients | None,
    node_group: int | None,
) -> MemoryPrediction:
    known = (coefficients or default_memory_coefficients()).in_stack(training.stack)
    if len(table) <= BLOCK:
        return _block(model, cluster, training, table, known, node_group)
    blocks = [
        _block(model, cluster, training, table.take(slice(start, start + BLOCK)), known, node_group)
        for start in range(0, len(table), BLOCK)
    ]
    return _joined(blocks)


WORK = (
    "software",
    "tp",
    "pp",
    "vpp",
    "first_stage_layers",
    "last_stage_layers",
    "placement",
    "sequence_parallel",
    "sp",
    "cp",
    "cp_all_gather",
    "ep",
    "micro_batch",
    "recompute",
    "recompute_layers",
    "partition_activations",
    "cpu_checkpointing",
    "chunked_loss",
    "compile",
    "capacity_factor",
)
"""Columns of a plan that its work depends on, beside its micro-batches in flight and gradients that
stay."""


@dataclass(frozen=True)
class Works:
    """The distinct works of a table, of each stage that can be the fullest."""

    stages: tuple[StageWork, ...]
    index: tuple[Ints, ...]
    """The pipeline stage of each [works]."""
    of_plan: Ints
    """The work of each plan [plans]."""


def _works(
    coefficients: MemoryCoefficients,
    model: ModelSpec,
    training: TrainingSpec,
    table: PlanTable,
    node_group: int | None,
) -> Works:
    in_flight = np.minimum(table.grad_accum, 2 * table.pp)  # more are never
    may = stays(coefficients, model, training, table)
    more = [in_flight, may]
    if "reduce_bucket" in table.varying and may.any():
        more.append(table.reduce_bucket * may)
    groups = group_rows(table, WORK, table.varying, *more)
    few = table.take(groups.first)
    shared = plan_work(coefficients, model, training, few)
    candidates = candidate_stages(model, few, node_group)
    return Works(
        stages=tuple(stage_work(model, training, few, shared, s) for s in candidates),
        index=tuple(s.index for s in candidates),
        of_plan=groups.of_row,
    )


def _block(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: MemoryCoefficients,
    node_group: int | None,
) -> MemoryPrediction:
    works = _works(coefficients, model, training, table, node_group)
    states = sharding(coefficients, model, training, table)
    room = tensor_bytes(coefficients, cluster)

    peak, cached = np.zeros((2, len(table)))
    moment, slot = np.zeros((2, len(table)), np.int64)
    stages = [(work, placed(table, states, work, works.of_plan)) for work in works.stages]
    for number, (work, plans) in enumerate(stages):
        found = _footprint(states, work, plans, room)
        for at, value in enumerate(found.allocated(plans)):
            higher = value > peak
            np.copyto(peak, value, where=higher)
            np.copyto(moment, at, where=higher)
            if number:
                np.copyto(slot, number, where=higher)
        np.maximum(cached, reserved(found, plans, states), out=cached)

    frame = framework_bytes(coefficients, table)
    kept = coefficients.fragmentation
    total = (1 + kept) * peak + frame
    index = works.index[0].take(works.of_plan)
    for number in range(1, len(stages)):
        np.copyto(index, works.index[number].take(works.of_plan), where=slot == number)

    def categories() -> dict[str, Floats]:
        all_of = joined(list(works.stages))
        row = slot * len(works.index[0]) + works.of_plan
        plans = placed(table, states, all_of, row)
        parts = _categories(_footprint(states, all_of, plans, room), plans, moment)
        return parts | {"fragmentation": kept * peak, "framework": frame}

    def by_phase() -> dict[str, Floats]:
        highest = np.zeros((len(MEMORY_PHASES), len(table)))
        for work, plans in stages:
            for at, value in enumerate(_footprint(states, work, plans, room).allocated(plans)):
                phase = highest[PHASE_OF_MOMENT[at]]
                np.maximum(phase, value, out=phase)
        rows = zip(MEMORY_PHASES, highest, strict=True)
        return {name: (1 + kept) * value + frame for name, value in rows}

    limit = np.maximum(cluster.node.gpu.memory_gib * GIB, total) - frame
    host, nvme = beside(coefficients, model, cluster, training, table, states, stages)
    return MemoryPrediction(
        allocated_bytes=peak,
        reserved_bytes=np.minimum(np.maximum(cached, total - frame), limit),
        total_bytes=total,
        peak_stage=index,
        peak_phase=np.array(PHASE_OF_MOMENT).take(moment),
        categories=OnDemand(categories),
        phases=OnDemand(by_phase),
        host_bytes=host,
        nvme_bytes=nvme,
    )


def _footprint(states: Sharding, work: StageWork, plans: Plans, gpu_bytes: float) -> Footprint:
    return footprint(plans, work, states.dense, states.expert, states.buffers, gpu_bytes)


def tensor_bytes(coefficients: MemoryCoefficients, cluster: ClusterSpec) -> float:
    """What a GPU has for tensors when the engine starts: its memory less the context."""
    return (cluster.node.gpu.memory_gib - coefficients.context_gib) * GIB


def reserved(found: Footprint, plans: Plans, states: Sharding) -> Floats:
    """What the caching allocator ends up holding where memory is plentiful [plans].

    Blocks cut for the passes do not serve the large flat tensors of the step, nor the other way
    round: each moment adds its own. Near the limit of the GPU they are given back.
    """
    held = plans.bytes(found.static_total() + found.held + Sum(sharding=states.floor))
    return held + plans.sharding(1 + states.growth) * plans.bytes(found.cached)


def _categories(found: Footprint, plans: Plans, moment: Ints) -> dict[str, Floats]:
    """Bytes by category at each plan's moment [plans]."""
    out = {}
    for name in MEMORY_CATEGORIES:
        total = np.zeros(len(moment))
        for number in range(len(MOMENTS)):
            rows = moment == number
            here = found.moments[number].get(name, Sum())
            if number:
                here += found.static.get(name, Sum())
            if rows.any():
                np.copyto(total, plans.bytes(here), where=rows)
        out[name] = total
    return out


def _joined(blocks: list[MemoryPrediction]) -> MemoryPrediction:
    """One prediction of consecutive blocks."""

    def floats(name: str) -> Floats:
        return np.concatenate([getattr(b, name) for b in blocks])

    def ints(name: str) -> Ints:
        return np.concatenate([getattr(b, name) for b in blocks])

    def columns(name: str) -> OnDemand:
        return OnDemand(
            lambda: {
                key: np.concatenate([getattr(b, name)[key] for b in blocks])
                for key in getattr(blocks[0], name)
            }
        )

    return MemoryPrediction(
        allocated_bytes=floats("allocated_bytes"),
        reserved_bytes=floats("reserved_bytes"),
        total_bytes=floats("total_bytes"),
        peak_stage=ints("peak_stage"),
        peak_phase=ints("peak_phase"),
        categories=columns("categories"),
        phases=columns("phases"),
        host_bytes=floats("host_bytes"),
        nvme_bytes=floats("nvme_bytes"),
    )
