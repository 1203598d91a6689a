"""Traffic between replicas: gradient reduction and ZeRO's gathers, and what of it hides."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.collectives import Topology, all_gather_seconds
from cost_model.memory.groups import group
from cost_model.plans import Bools, Floats, Ints, PlanTable, Software
from cost_model.specs.training import TrainingSpec


@dataclass(frozen=True)
class DataParallel:
    """Gradient reduction and ZeRO gathers of one rank [plans]."""

    per_micro_batch: Floats
    """Exposed seconds per micro-batch."""
    per_step: Floats
    """Exposed seconds once per step."""
    n_bytes: Floats
    """Bytes each rank sends per step."""


@dataclass(frozen=True)
class _Rings:
    """Seconds of an all-gather as start + bytes x per_byte [plans]: a ring is linear in its bytes,
    and there are few distinct groups. An all-reduce is two of them."""

    start: Floats
    per_byte: Floats

    def seconds(self, n_bytes: Floats) -> Floats:
        return self.start + n_bytes * self.per_byte


def _rings(topology: Topology, size: Ints, stride: Ints) -> _Rings:
    groups = group(size, stride)
    few, apart = size.take(groups.first), stride.take(groups.first)
    start = all_gather_seconds(topology, np.zeros(len(few)), few, apart)
    per_gigabyte = all_gather_seconds(topology, np.full(len(few), 1e9), few, apart) - start
    return _Rings(start.take(groups.of_row), (per_gigabyte / 1e9).take(groups.of_row))


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
    both passes and reduces in every micro-batch (ZeRO, arXiv 1910.02054, section 7). Quantised
    weights halve a gather and hpZ keeps the backward one in a node; quantised gradients quarter
    the reduction (ZeRO++, arXiv 2306.10209, section 3).
    """
    wire = _reduce_element_bytes(training, table)
    element = 4.0 if training.precision == "fp32" else 2.0
    size, stage = table.zero_group, table.zero_stage
    three, none = stage == 3, stage == 0
    held = dense + expert
    ring = _rings(topology, size, table.tp)
    gather, reduce = ring.seconds(dense * element), ring.seconds(dense * wire * trained)
    if expert.any():
        own = _rings(topology, np.maximum(size // table.ep, 1), table.tp * table.ep)
        gather = gather + own.seconds(expert * element)
        reduce = reduce + own.seconds(expert * wire * trained)
    copied = np.array([coefficients.of_software(s).zero_traffic_ratio for s in Software])
    copied = np.where(none, 1.0, copied.take(table.software))
    gather, reduce = gather * copied, reduce * copied
    again = gather
    if three.any() and (table.quantized_weights.any() or table.hpz.max() > 1):
        gather = np.where(three & table.quantized_weights, gather / 2.0, gather)
        near = _rings(topology, table.hpz, table.tp).seconds(held * element)
        again = np.where(three & (table.hpz > 1), near, gather)
    if table.quantized_gradients.any():
        reduce = np.where(three & table.quantized_gradients, reduce / 4.0, reduce)
    pieces = np.where(three, layers, _buckets(held, table.reduce_bucket))
    gathers = np.where(three, layers, _buckets(held, table.allgather_bucket))
    far = size * table.tp > topology.gpus_per_node
    base = np.where(far, topology.network_base_s, topology.island_base_s)
    more = (pieces - 1.0) * base

    # What runs beside a backward pass: reductions, and at stage 3 the gather; behind a forward
    # pass: stage 3's gather, and Megatron's of the weights just updated
    behind = three | (table.overlap_comm & (table.software == Software.MEGATRON))
    hidden = np.array([coefficients.of_software(s).dp_overlap for s in Software])
    hidden = hidden.take(table.software) * (table.overlap_comm | three)
    behind = behind & ((table.prefetch_bucket > 0) | ~three)
    early = _exposed(
        gather + (gathers - 1.0) * base, forward, hidden * behind, gathers, comm_slowdown
    )
    late = np.where(three, again + reduce, np.where(none, 2.0 * reduce, reduce)) + more
    late = _exposed(late, backward, hidden, pieces, comm_slowdown)
    weights = np.where(none, 0.0, np.where(three, early, early * trained))
    every, once = _by_frequency(stage, weights, late)

    many = size > 1
    share = (size - 1) / size
    gathers = np.where(three, 2.0 * table.grad_accum, np.where(none, 0.0, trained)) * element
    reduces = np.where(stage >= 2, table.grad_accum, np.where(none, 2.0, 1.0)) * (trained * wire)
    return DataParallel(every * many, once * many, held * (gathers + reduces) * share)


def _buckets(elements: Floats, bucket: Ints) -> Floats:
    """Buckets that the elements fill [plans]."""
    filled: Floats = np.maximum(elements / np.maximum(bucket, 1), 1.0)
    return filled


def _exposed(
    traffic: Floats, compute: Floats, hidden: Floats, pieces: Floats, slowdown: float
) -> Floats:
    """Seconds that traffic adds to compute beside it [plans].

    hidden: share of the compute that can cover traffic. The last of the pieces has nothing beside
    it, and what is covered slows the compute down: SMs and memory are taken.
    """
    covered = np.minimum(traffic * (1.0 - 1.0 / pieces), hidden * compute)
    left: Floats = traffic - covered * (1.0 - slowdown)
    return left


def _by_frequency(stage: Ints, weights: Floats, gradients: Floats) -> tuple[Floats, Floats]:
    """Exposed seconds per micro-batch and per step [plans].

    Stage 3 gathers and reduces in every micro-batch, stage 2 reduces in every one.
    """
    every_gather: Bools = stage == 3
    every_reduce: Bools = stage >= 2
    per_micro_batch = weights * every_gather + gradients * every_reduce
    return per_micro_batch, weights + gradients - per_micro_batch
