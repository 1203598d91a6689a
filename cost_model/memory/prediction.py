"""Memory of a table of plans: the worst stage at the worst moment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_model.calibration.memory import GIB, MemoryCoefficients, default_memory_coefficients
from cost_model.memory.buffers import Buffers, buffers
from cost_model.memory.engines import is_pipelined
from cost_model.memory.footprint import MOMENTS, PHASE_OF_MOMENT, Footprint, Parts, footprint
from cost_model.memory.framework import framework_bytes
from cost_model.memory.groups import group
from cost_model.memory.host import Away, host_bytes, offloaded_bytes
from cost_model.memory.layout import candidate_stages
from cost_model.memory.oversized import largest_kept
from cost_model.memory.profile import by_software
from cost_model.memory.states import Rates, state_rates
from cost_model.memory.work import StageWork, joined, plan_work, stage_work
from cost_model.plans import Floats, Ints, Offload, PlanTable, Software
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
    known = (coefficients or default_memory_coefficients()).in_stack(training.stack)
    if len(table) <= BLOCK:
        return _block(model, cluster, training, table, known)
    blocks = [
        _block(model, cluster, training, table.take(slice(start, start + BLOCK)), known)
        for start in range(0, len(table), BLOCK)
    ]
    return _joined(blocks)


@dataclass(frozen=True)
class Sharding:
    """How the states of every plan are sharded, and its buffers [plans]."""

    dense: Rates
    expert: Rates | None
    """None where the model has no experts."""
    buffers: Buffers


def sharding(
    coefficients: MemoryCoefficients, model: ModelSpec, training: TrainingSpec, table: PlanTable
) -> Sharding:
    """Computed once per combination of the columns it depends on."""
    ranks = table.zero_group
    groups = group(
        table.software,
        table.zero_stage,
        ranks,
        table.ep,
        table.grad_accum > 1,
        table.offload_optimizer,
        table.offload_param,
        table.offload_ratio,
        table.overlap_comm,
        table.reduce_bucket,
        table.max_live_params,
        table.hpz,
        is_pipelined(table),
        table.sp * table.cp > 1,
    )
    few = table.take(groups.first)
    over = few.zero_group.astype(np.float64)
    dense = state_rates(coefficients, training, few, over)
    expert = None
    if model.is_moe and training.lora is None:
        experts = np.maximum(over / few.ep, 1.0)
        expert = state_rates(coefficients, training, few, experts).spread(groups.of_row)
    return Sharding(
        dense=dense.spread(groups.of_row),
        expert=expert,
        buffers=buffers(coefficients, training, few).spread(groups.of_row),
    )


def _block(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: MemoryCoefficients,
) -> MemoryPrediction:
    groups = group(
        table.software,
        table.tp,
        table.pp,
        table.vpp,
        np.minimum(table.grad_accum, 2 * table.pp),  # more are never in flight
        table.first_stage_layers,
        table.last_stage_layers,
        table.sequence_parallel,
        table.sp,
        table.cp,
        table.cp_all_gather,
        table.ep,
        table.micro_batch,
        table.recompute,
        table.recompute_layers,
        table.partition_activations,
        table.cpu_checkpointing,
        table.chunked_loss,
        table.compile,
        table.capacity_factor,
        largest_kept(coefficients, model, training, table),
    )
    few = table.take(groups.first)
    shared = plan_work(coefficients, model, training, few)
    candidates = candidate_stages(model, few)
    works = [stage_work(model, training, few, shared, stages) for stages in candidates]
    states = sharding(coefficients, model, training, table)
    growth = by_software(coefficients, table.software, lambda p: p.cache_growth)

    peak = np.zeros(len(table))
    cached = np.zeros(len(table))
    phases = {name: np.zeros(len(table)) for name in MEMORY_PHASES}
    slot = np.zeros(len(table), np.int64)
    picked = [sharded_embeddings(work.pick(groups.of_row), table) for work in works]
    tensors = tensor_bytes(coefficients, cluster)
    for number, work in enumerate(picked):
        found = _footprint(states, work, tensors)
        held = found.allocated()
        for index, value in zip(PHASE_OF_MOMENT, held, strict=True):
            phase = phases[MEMORY_PHASES[index]]
            np.maximum(phase, value, out=phase)
        highest = np.maximum.reduce(held)
        if number:
            slot += (highest > peak) * (number - slot)
        np.maximum(peak, highest, out=peak)
        np.maximum(cached, reserved(found, growth), out=cached)
    worst = groups.of_row
    if len(works) > 1:
        worst = slot * groups.count + groups.of_row
        found = _footprint(states, sharded_embeddings(joined(works).pick(worst), table), tensors)
        held = found.allocated()
    moment = np.zeros(len(table), np.int64)
    for number in range(1, len(MOMENTS)):
        moment += (held[number] >= peak) * (moment == 0) * number
    stage = np.concatenate([c.index for c in candidates]).take(worst)

    frame = framework_bytes(coefficients, table)
    kept = coefficients.fragmentation
    total = (1 + kept) * peak + frame
    categories = _categories(found, moment)
    categories["fragmentation"] = kept * peak
    categories["framework"] = frame
    room = np.maximum(cluster.node.gpu.memory_gib * GIB, total) - frame
    ranks = np.minimum(table.world_size, cluster.node.gpus_per_node).astype(np.float64)
    on_host, on_nvme = _beside(training, table, states, picked)
    return MemoryPrediction(
        allocated_bytes=peak,
        reserved_bytes=np.minimum(np.maximum(cached, total - frame), room),
        total_bytes=total,
        peak_stage=stage,
        peak_phase=np.array(PHASE_OF_MOMENT).take(moment),
        categories=categories,
        phases={name: (1 + kept) * value + frame for name, value in phases.items()},
        host_bytes=host_bytes(coefficients, model, training, table, *on_host, ranks),
        nvme_bytes=on_nvme * ranks,
    )


def _footprint(states: Sharding, work: StageWork, gpu_bytes: float) -> Footprint:
    return footprint(work, states.dense, states.expert, states.buffers, gpu_bytes)


def sharded_embeddings(work: StageWork, table: PlanTable) -> StageWork:
    """AutoTP under ZeRO-3 leaves what it does not cut partitioned over all ranks, as zero.Init had
    it: TP ranks hold parts of embeddings, head and norms, not copies (auto_tp.py
    _gather_zero3_params)."""
    over_all = (table.software == Software.DEEPSPEED) & (table.zero_stage == 3) & (table.tp > 1)
    if not over_all.any():
        return work
    return replace(work, dense=work.dense - np.where(over_all, work.replicated, 0.0))


def tensor_bytes(coefficients: MemoryCoefficients, cluster: ClusterSpec) -> float:
    """What a GPU has for tensors when the engine starts: its memory less the context."""
    return (cluster.node.gpu.memory_gib - coefficients.context_gib) * GIB


def reserved(found: Footprint, growth: Floats) -> Floats:
    """What the caching allocator ends up holding where memory is plentiful.

    Blocks cut for the passes do not serve the large flat tensors of the step, nor the other way
    round: each moment adds its own. Near the limit of the GPU they are given back.
    """
    total: Floats = found.static_total() + found.held + (1 + growth) * found.cached
    return total


def _categories(found: Footprint, moment: Ints) -> Parts:
    """Bytes by category at each row's moment."""
    seen = [number for number in range(len(MOMENTS)) if (moment == number).any()]
    at = {number: (moment == number).astype(np.float64) for number in seen}
    out: Parts = {}
    for name in MEMORY_CATEGORIES:
        total = np.zeros(len(moment))
        if name in found.static:
            total = total + found.static[name]
            if 0 in at:
                total *= 1 - at[0]
        distinct: dict[int, list[int]] = {}
        for number in seen:
            if name in found.moments[number]:
                distinct.setdefault(id(found.moments[number][name]), []).append(number)
        for numbers in distinct.values():
            value = found.moments[numbers[0]][name]
            if len(numbers) < len(seen):
                value = value * sum(at[number] for number in numbers)
            total = total + value
        out[name] = total
    return out


def _beside(
    training: TrainingSpec, table: PlanTable, states: Sharding, works: Sequence[StageWork]
) -> tuple[tuple[Floats, Floats], Floats]:
    """Of the fullest rank: states and activations on the host, and bytes on NVMe [plans]."""
    offloaded, activations, nvme = np.zeros((3, len(table)))
    for work in works:
        np.maximum(activations, work.on_host, out=activations)
    some = (table.offload_optimizer > 0) | (table.offload_param > 0)
    rows = np.flatnonzero(some & (table.zero_stage > 0))
    if len(rows) == 0:
        return (offloaded, activations), nvme

    def of(values: Floats) -> Floats:
        return values if len(values) == 1 else values.take(rows)

    def elements(name: str, work: StageWork) -> tuple[Floats, Floats]:
        dense = of(getattr(states.dense, name)) * of(work.dense)
        if states.expert is None:
            return dense, np.zeros(1)
        return dense, of(getattr(states.expert, name)) * of(work.expert)

    three = table.zero_stage.take(rows) == 3
    for work in works:
        away = Away(
            three=three,
            optimizer_on_flash=table.offload_optimizer.take(rows) == Offload.NVME,
            weights_on_flash=table.offload_param.take(rows) == Offload.NVME,
            ranks=table.zero_group.take(rows),
            optimizer=elements("away", work),
            weights=elements("weights_away", work),
            matrix=of(work.matrix),
        )
        host, flash = offloaded_bytes(training, away)
        offloaded[rows] = np.maximum(offloaded[rows], host)
        nvme[rows] = np.maximum(nvme[rows], flash)
    return (offloaded, activations), nvme


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
