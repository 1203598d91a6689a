"""Traffic between replicas: gradient reduction and ZeRO's gathers, and what of it hides."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.calibration.columns import software_column
from cost_model.collectives import Ring, Topology
from cost_model.memory.engines import MEGATRON_BUCKET, defers_reduction
from cost_model.memory.groups import group
from cost_model.plans import Bools, Floats, Ints, PlanTable, Software, any_of
from cost_model.specs.training import TrainingSpec

_MANY = 4096
"""Rows from which distinct rings are worth looking for."""

_MATRICES = 7.0
"""Matrices of a layer at most, each a parameter that ZeRO 3 gathers."""
_NOTHING = 1e-12
"""Seconds that are none."""


@dataclass(frozen=True)
class DataParallel:
    """Gradient reduction and ZeRO gathers of one rank [plans]."""

    per_micro_batch: Floats
    """Exposed seconds per micro-batch."""
    per_step: Floats
    """Exposed seconds once per step."""
    n_bytes: Floats
    """Bytes each rank sends per step."""
    spare_forward: Floats
    """Seconds of a micro-batch's forward pass that nothing covers, for copies to the host."""
    spare_backward: Floats


def _rings(topology: Topology, size: Ints, stride: Ints) -> Ring:
    """Rings [plans]; there are few distinct ones."""
    if len(size) < _MANY:
        return Ring.of(topology, size, stride)
    groups = group(size, stride)
    rings = Ring.of(topology, size.take(groups.first), stride.take(groups.first))
    return rings.take(groups.of_row)


def _reduce_element_bytes(training: TrainingSpec, table: PlanTable) -> Floats:
    """Bytes of a gradient element on the wire [plans].

    Megatron reduces its fp32 main gradients under bf16 and 16-bit ones under fp16; DeepSpeed
    reduces in the training precision; FSDP as asked, else in the training precision. comm_16bit
    casts whatever it is (DeepSpeed's communication_data_type, Megatron's --grad-reduce-in-bf16).
    """
    element = 4.0 if training.precision == "fp32" else 2.0
    wide = training.fp32_grad_accum
    by_software = np.full(len(Software), element)
    if wide is None:
        by_software[Software.MEGATRON] = 4.0 if training.precision == "bf16" else element
    elif wide:
        by_software[[Software.MEGATRON, Software.FSDP]] = 4.0
    return np.where(table.comm_16bit, 2.0, by_software.take(table.software))


def data_parallel(
    training: TrainingSpec,
    table: PlanTable,
    topology: Topology,
    coefficients: Coefficients,
    comm_slowdown: float,
    dense: Floats,
    expert: Floats,
    layers: Floats,
    forward: Floats,
    backward: Floats,
    trained: float,
) -> DataParallel:
    """Gradient and parameter traffic between replicas, less what hides [plans].

    dense, expert: parameters of the rank; trained: share of them that has gradients; forward,
    backward: seconds of one micro-batch on the rank. Volumes: stages 0 to 2 move twice
    the parameters per step, stage 2 the gradients' half once per micro-batch, stage 3 gathers for
    both passes and reduces in every micro-batch (ZeRO, arXiv 1910.02054, section 7), but for FSDP
    in a pipeline. Quantised
    weights halve a gather and hpZ keeps the backward one in a node; quantised gradients quarter
    the reduction (ZeRO++, arXiv 2306.10209, section 3).
    """
    wire = _reduce_element_bytes(training, table)
    element = 4.0 if training.precision == "fp32" else 2.0
    size, stage = table.zero_group, table.zero_stage
    if (table.pp > 1).any():  # gathered and reduced once a step, as stage 1 is
        stage = np.where(defers_reduction(table), np.minimum(stage, 1), stage)
    three, none = stage == 3, stage == 0
    held = dense + expert
    ring = _rings(topology, size, table.tp)
    gather, reduce = ring.all_gather(dense * element), ring.all_gather(dense * wire * trained)
    if expert.any():
        own = _rings(topology, np.maximum(size // table.ep, 1), table.tp * table.ep)
        gather = gather + own.all_gather(expert * element)
        reduce = reduce + own.all_gather(expert * wire * trained)
    ratio = software_column(coefficients, "zero_traffic_ratio", table.software)
    copied = np.where(none, 1.0, ratio)
    gather, reduce = gather * copied, reduce * copied
    again, within = gather, ring
    if three.any() and (table.quantized_weights.any() or table.hpz.max() > 1):
        gather = np.where(three & table.quantized_weights, gather / 2.0, gather)
        within = _rings(topology, table.hpz, table.tp)
        again = np.where(three & (table.hpz > 1), within.all_gather(held * element), gather)
    if table.quantized_gradients.any():
        reduce = np.where(three & table.quantized_gradients, reduce / 4.0, reduce)
    megatron = any_of(table.software, Software.MEGATRON)
    fsdp = any_of(table.software, Software.FSDP)
    pieces, gathers = _pieces(table, coefficients, stage, held, layers)
    more = (pieces - 1.0) * np.where(none, ring.whole_start, ring.start)
    fetched = again / np.where(table.hpz > 1, 1.0, copied) - ring.start
    again = again + np.where(three, (gathers - 1.0) * ring.start, 0.0)

    # What runs beside a backward pass: reductions, and at stage 3 the gather; behind a forward
    # pass: stage 3's gather, and Megatron's of the weights just updated. Without overlap_comm
    # DeepSpeed's stage 3 gathers and reduces on the stream of the passes themselves (stage3.py,
    # parameter_offload.py)
    behind = three | (table.overlap_comm & megatron)
    hidden = software_column(coefficients, "dp_overlap", table.software)
    hidden = hidden * (table.overlap_comm | (three & fsdp))
    behind = behind & ((table.prefetch_bucket > 0) | ~three)
    # Interleaved chunks are reduced and gathered while p micro-batches pass the other chunks
    window = np.where(megatron & (table.vpp > 1), np.minimum(table.pp, table.grad_accum), 1)
    early = gather + (gathers - 1.0) * ring.start
    alone = comm_slowdown * _on_fast_link(ring.pace, gather / copied - ring.start)
    early, fetching = _exposed(early, forward * window, hidden * behind, gathers, alone)
    both = 2.0 * (reduce - ring.start) + ring.whole_start
    late = np.where(three, again + reduce, np.where(none, both, reduce)) + more
    near = np.where(table.hpz > 1, within.pace, ring.pace)
    alone = _on_fast_link(ring.pace, reduce / copied - ring.start) * np.where(none, 2.0, 1.0)
    alone = comm_slowdown * (alone + three * _on_fast_link(near, fetched))
    late, reducing = _exposed(late, backward * window, hidden, pieces, alone)
    weights = np.where(none, 0.0, np.where(three, early, early * trained))
    every, once = _by_frequency(stage, weights, late)

    many = size > 1
    return DataParallel(
        every * many,
        once * many,
        held * _sent_bytes(table, stage, element, wire, trained),
        forward - np.where(three & many, fetching, 0.0),
        backward - np.where((stage >= 2) & many, reducing, 0.0),
    )


def _pieces(
    table: PlanTable, coefficients: Coefficients, stage: Ints, held: Floats, layers: Floats
) -> tuple[Floats, Floats]:
    """Reductions and gathers into which a rank's parameters are cut [plans]."""
    megatron, fsdp = (
        any_of(table.software, Software.MEGATRON),
        any_of(table.software, Software.FSDP),
    )
    most = np.maximum(MEGATRON_BUCKET, 1_000_000 * table.zero_group)
    three = stage == 3
    pieces = np.where(
        three & fsdp, layers, _buckets(held, np.where(megatron, most, table.reduce_bucket))
    )
    # DeepSpeed's ZeRO 1 and 2 gather all weights at once, whatever allgather_bucket_size says,
    # where torch has all_gather_into_tensor (runtime/utils.py, all_gather_dp_groups)
    gathers = np.where(three | megatron, pieces, 1.0)
    if three.any():
        gathers = np.where(three & ~fsdp, _prefetches(table, held, layers), gathers)
    tensors = software_column(coefficients, "zero_pieces_per_layer", table.software)
    if tensors.any():
        alone = (stage > 0) & ~three & (tensors > 0)
        pieces = np.where(alone, tensors * layers, pieces)
        gathers = np.where(alone, pieces, gathers)
    return pieces, gathers


def _sent_bytes(
    table: PlanTable, stage: Ints, element: float, wire: Floats, trained: float
) -> Floats:
    """Bytes that a rank sends per step and parameter that it holds [plans]."""
    three, none, size = stage == 3, stage == 0, table.zero_group
    gathers = np.where(three, 2.0 * table.grad_accum, np.where(none, 0.0, trained)) * element
    reduces = np.where(stage >= 2, table.grad_accum, np.where(none, 2.0, 1.0)) * (trained * wire)
    sent: Floats = (gathers + reduces) * ((size - 1) / size)
    return sent


def _on_fast_link(pace: Floats, seconds: Floats) -> Floats:
    """Seconds that traffic would take on the fast link alone [plans]."""
    quick: Floats = pace * np.maximum(seconds, 0.0)
    return quick


def _prefetches(table: PlanTable, held: Floats, layers: Floats) -> Floats:
    """Gathers of one pass of DeepSpeed's ZeRO 3 [plans].

    Each takes as many of the next parameters as fill the prefetch bucket, at least one
    (partitioned_param_coordinator.py, fetch_sub_module).
    """
    count: Floats = np.minimum(_buckets(held, table.prefetch_bucket), _MATRICES * layers)
    return count


def _buckets(elements: Floats, bucket: Ints) -> Floats:
    """Buckets that the elements fill [plans]."""
    filled: Floats = np.maximum(elements / np.maximum(bucket, 1), 1.0)
    return filled


def _exposed(
    traffic: Floats, compute: Floats, hidden: Floats, pieces: Floats, slowing: Floats
) -> tuple[Floats, Floats]:
    """Seconds that traffic adds to compute beside it, and seconds of it that are covered [plans].

    hidden: share of the compute that can cover traffic. The last of the pieces has nothing beside
    it. slowing: seconds by which compute grows beside all of the traffic: multiprocessors and
    memory are taken, the more the faster it runs. Products on A100 beside NCCL grow by 45 % of its
    time within a node and by 10 % where four nodes share 400 Gbit/s (Mist's published profiles,
    EuroSys 2025).
    """
    covered: Floats = np.minimum(traffic * (1.0 - 1.0 / pieces), hidden * compute)
    return traffic - covered + slowing * (covered / np.maximum(traffic, _NOTHING)), covered


def _by_frequency(stage: Ints, weights: Floats, gradients: Floats) -> tuple[Floats, Floats]:
    """Exposed seconds per micro-batch and per step [plans].

    Stage 3 gathers and reduces in every micro-batch, stage 2 reduces in every one.
    """
    every_gather: Bools = stage == 3
    every_reduce: Bools = stage >= 2
    per_micro_batch = weights * every_gather + gradients * every_reduce
    return per_micro_batch, weights + gradients - per_micro_batch
