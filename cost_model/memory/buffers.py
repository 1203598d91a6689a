"""Communication buffers and the weights that ZeRO-3 has gathered."""

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.precision import element_bytes
from cost_model.memory.profile import by_software
from cost_model.plans import Bools, Floats, PlanTable
from cost_model.specs import TrainingSpec


def has_buckets(
    coefficients: MemoryCoefficients, training: TrainingSpec, table: PlanTable
) -> Bools:
    """Whether the gradient is reduced through buffers of its own.

    DeepSpeed's BF16_Optimizer reduces views of its flat fp32 gradient and needs none.
    """
    buckets = by_software(coefficients, table.software, lambda p: p.bucket_buffers) > 0
    if training.precision != "bf16":
        return buckets
    flat = by_software(coefficients, table.software, lambda p: p.always_shards_optimizer) > 0
    return buckets & ~flat


def backward_buckets(training: TrainingSpec, table: PlanTable, has: Bools) -> Floats:
    """Contiguous gradient buckets of ZeRO 1 and 2 during the backward pass.

    One of reduce_bucket_size elements, two with overlap_comm (DeepSpeed stage_1_and_2.py
    allocates ipg_buffer whole, however small the model).
    """
    buffers = np.where(table.overlap_comm, 2.0, 1.0)
    active = has & ((table.zero_stage == 1) | (table.zero_stage == 2))
    return np.where(active, element_bytes(training) * buffers * table.reduce_bucket, 0.0)


def permanent_buckets(training: TrainingSpec, table: PlanTable, has: Bools) -> Floats:
    """ZeRO-3's reduce bucket, allocated once (DeepSpeed stage3.py)."""
    active = has & (table.zero_stage == 3)
    return np.where(active, element_bytes(training) * table.reduce_bucket, 0.0)


def gathered_weights(
    training: TrainingSpec, table: PlanTable, params: Floats, largest: Floats, fsdp: Bools
) -> Floats:
    """16-bit weights alive outside their shard while a layer runs.

    DeepSpeed ZeRO-3 releases a gathered parameter only when more than max_live_params are alive, so
    that many stay, and the layer in use beside them where it is larger. FSDP holds the unit in use
    and the one prefetched, and their unreduced gradients; SHARD_GRAD_OP (ZeRO 2) holds all weights.
    """
    element = element_bytes(training)
    deepspeed = np.minimum(params, np.maximum(table.max_live_params, largest))
    units = np.minimum(params, 2 * largest)
    zero3 = np.where(fsdp, 2 * units, deepspeed)
    whole = np.where(fsdp & (element == 2), params, 0.0)
    return element * np.where(table.zero_stage == 3, zero3, whole)


def secondary_shard(training: TrainingSpec, table: PlanTable, params: Floats) -> Floats:
    """ZeRO++ hpZ: the weights again, within each group of hpz ranks (arXiv 2306.10209)."""
    active = (table.zero_stage == 3) & (table.hpz > 1)
    return np.where(active, element_bytes(training) * params / table.hpz, 0.0)
