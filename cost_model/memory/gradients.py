"""Bytes of gradients per parameter, from moment to moment of a step."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.engines import Engines, defers_reduction
from cost_model.memory.precision import element_bytes
from cost_model.memory.profile import by_software
from cost_model.plans import Bools, Floats, Offload, PlanTable
from cost_model.specs import TrainingSpec


@dataclass(frozen=True)
class Gradients:
    """Bytes per parameter of one rank's stage on the GPU [rows]."""

    held: Floats
    """While the forward pass of the last micro-batch runs."""
    growing: Floats
    """What its backward pass adds by its end."""
    at_step: Floats
    """Still there when the optimizer begins."""
    kept: Floats
    """There from step to step."""


def gradients(
    coefficients: MemoryCoefficients,
    training: TrainingSpec,
    table: PlanTable,
    engine: Engines,
    casts: Bools,
    grad: Floats,
    ranks: Floats,
) -> Gradients:
    """Gradients of every plan.

    casts: FSDP's fp32 shards [rows]. grad: bytes of an accumulated element [rows]. ranks: over
    which ZeRO shards [rows].
    """
    zero, many = table.zero_stage, table.grad_accum > 1
    permanent = by_software(coefficients, table.software, "permanent_gradients") > 0
    part = grad / ranks
    # Megatron, FSDP, plain data parallelism
    held = np.where(zero >= 2, part, np.where(permanent | many, grad, 0.0))
    held = np.where((zero >= 2) & ~many & ~permanent, 0.0, held)
    growing = np.where(zero >= 2, part, grad) - held
    whole = by_software(coefficients, table.software, "accumulates_whole") > 0
    deferred = (defers_reduction(table) | (whole & many)) & (zero >= 2)
    held, growing = np.where(deferred, grad, held), np.where(deferred, 0.0, growing)
    bucketed = by_software(coefficients, table.software, "unreduced_elements") > 0
    held = held + np.where(bucketed & (zero == 2) & ~table.overlap_comm, grad, 0.0)
    at_step = np.where(zero >= 2, part, held + growing)
    kept = np.where(permanent, at_step, 0.0)
    buckets = by_software(coefficients, table.software, "replica_bucket_bytes")
    buckets = np.where(ranks > 1, buckets, 0.0)
    held, at_step, kept = held + buckets, at_step + buckets, kept + buckets
    for mine, values in (
        (engine.whole, (np.where(many, grad, 0.0), np.where(many, 0.0, grad), grad, 0.0 * grad)),
        (engine.flat, _flat(training, grad, ranks)),
        (engine.partitioned, _partitioned(table, engine, grad, part, many)),
        (engine.gathered, (part, 0.0 * part, part, part)),
    ):
        held, growing, at_step, kept = (
            np.where(mine, new, old)
            for new, old in zip(values, (held, growing, at_step, kept), strict=True)
        )
    away = (table.offload_optimizer != int(Offload.NONE)) & (engine.partitioned | engine.gathered)
    # what a reduced bucket holds of this rank's part leaves for the host at once
    # and what stays of ZeRO-3's has fp32 for good (stage3.py subgroup_gradient_buffer)
    left = np.where(engine.gathered, (1 - table.offload_ratio) * np.maximum(4 / grad, 1.0), 0.0)
    left = np.where(away, left, 1.0)
    whole = engine.partitioned & ~engine.frees
    return Gradients(
        held=held * np.where(whole, 1.0, left),
        growing=growing * np.where(whole, 1.0, left),
        at_step=at_step * left,
        kept=kept * left,
    )


def _flat(
    training: TrainingSpec, grad: Floats, ranks: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """BF16_Optimizer: one flat gradient for good, and the 16-bit ones until the next pass.

    A fp32 one is reduced in 16 bits, through a copy of the whole (engine.py allreduce_bucket).
    """
    element = float(element_bytes(training))
    sent = np.where((grad > element) & (ranks > 1), element, 0.0)
    return grad, element + sent, grad + element, grad


def _partitioned(
    table: PlanTable, engine: Engines, grad: Floats, part: Floats, many: Bools
) -> tuple[Floats, Floats, Floats, Floats]:
    """ZeRO 1 and 2.

    ZeRO 1 without overlap, or before the last micro-batch, keeps whole gradients, and reduces them
    bucket by bucket at the end. ZeRO 2 keeps its part of what came before, beside the new one.
    """
    whole = ~engine.frees
    held = np.where(many, np.where(whole, grad, part), 0.0)
    growing = np.where(whole, np.where(many, 0.0, grad), part)
    # a flat fp32 part is filled in place (GradPartitionBufferGroup)
    second = (table.zero_stage == 2) & many & (grad >= 4)
    return held, np.where(second, 0.0, growing), part, 0.0 * part
