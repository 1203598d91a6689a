"""Bytes per parameter of weights, gradients, optimizer states and master copy, and where they live.

Mixed precision with Adam holds 2 bytes of weights, 2 or 4 of gradients, 4 of master copy and 8 of
moments a parameter; ZeRO divides optimizer (1), gradients (2) and weights (3) by the data-parallel
ranks (arXiv 1910.02054, section 5). Megatron's distributed optimizer holds 6 + 12 / d.
"""

from dataclasses import dataclass, fields

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.groups import spread
from cost_model.memory.precision import element_bytes, gradient_bytes
from cost_model.memory.profile import by_software
from cost_model.plans import Floats, Ints, Offload, PlanTable
from cost_model.specs import TrainingSpec

OPTIMIZER_BYTES = {
    "adamw": 8.0,
    "adam8bit": 2.0 + 8 / 256,  # one fp32 scale for each block of 256 of both moments
    "paged_adam8bit": 2.0 + 8 / 256,
    "lion": 4.0,
    "sgd": 0.0,
    "adafactor": 0.02,  # row and column sums: (rows + columns) / (rows x columns)
    "adagrad": 4.0,
    "muon": 4.0,
}
"""Bytes of optimizer state per parameter, without the master copy."""


def optimizer_bytes(training: TrainingSpec) -> float:
    """Bytes of optimizer state per parameter; without a master copy states have 16 bits too."""
    full = OPTIMIZER_BYTES[training.optimizer]
    whole_fp32 = training.fp32_master or training.optimizer in ("adam8bit", "paged_adam8bit")
    return full if whole_fp32 else full * element_bytes(training) / 4


@dataclass(frozen=True)
class Rates:
    """Bytes per parameter of one rank's stage [rows]: of the GPU unless said."""

    weights: Floats
    master: Floats
    optimizer: Floats
    gradients: Floats
    """Held from one micro-batch to the next."""
    gradients_growing: Floats
    """What the backward pass of the last micro-batch adds by its end."""
    gradients_at_step: Floats
    """Still there while the optimizer runs."""
    step: Floats
    """fp32 gradient copy and optimizer temporaries."""
    init: Floats
    """Weights and flat copies when the engine starts."""
    frozen: Floats
    """Per frozen parameter, in 16-bit equivalents."""
    host: Floats
    """Pinned host bytes of offloaded states, per parameter of this rank's stage."""
    nvme: Floats

    def spread(self, of_row: Ints) -> "Rates":
        """From combinations to rows."""
        return Rates(**{f.name: spread(getattr(self, f.name), of_row) for f in fields(self)})


def state_rates(
    coefficients: MemoryCoefficients,
    training: TrainingSpec,
    table: PlanTable,
    ranks: Floats,
) -> Rates:
    """Rates of every plan of a table.

    ranks: over which ZeRO shards: dp sp cp for dense parameters, that over ep for experts.
    """
    software, zero = table.software, table.zero_stage
    element = float(element_bytes(training))
    mixed = element == 2 and training.fp32_master
    always = by_software(coefficients, software, lambda p: p.always_shards_optimizer) > 0
    # FSDP keeps fp32 parameters, sharded from SHARD_GRAD_OP (ZeRO 2) on, and casts them on use
    casts = by_software(coefficients, software, lambda p: p.holds_16bit_weights) == 0
    permanent = by_software(coefficients, software, lambda p: p.permanent_gradients) > 0
    grad = by_software(coefficients, software, lambda p: gradient_bytes(p.gradient_bytes, training))
    shards_optimizer = (zero >= 1) | (always & (training.precision == "bf16"))
    optimizer_share = np.where(shards_optimizer, 1 / ranks, 1.0)
    gradient_share = np.where(zero >= 2, 1 / ranks, 1.0)
    weight_share = np.where(zero >= np.where(casts, 2, 3), 1 / ranks, 1.0)

    weights = element * weight_share
    master = 0.0 * weights
    if mixed:
        master = 4.0 * np.where(casts, weight_share, optimizer_share)
        if training.lora is None:
            weights = np.where(casts, 0.0, weights)
    optimizer = optimizer_bytes(training) * optimizer_share

    many = table.grad_accum > 1
    full, part = grad, grad * gradient_share
    held = np.where(zero >= 2, part, np.where(permanent | many, full, 0.0))
    lazy = (zero == 2) | (casts & (zero == 3))  # DeepSpeed's ZeRO 3 holds a flat gradient shard
    held = np.where(lazy & ~many & ~permanent, 0.0, held)
    growing = np.where(zero >= 2, part, full) - held
    # ZeRO 1 copies its share out of the whole gradient before it lets the rest go
    deepspeed = ~permanent & ~casts
    growing = growing + np.where(deepspeed & (zero == 1), grad / ranks, 0.0)
    at_step = np.where(permanent | (zero == 0) | (zero == 3) | ~deepspeed, held + growing, 0.0)

    step = _step_bytes(coefficients, training, software, grad) * optimizer_share

    flat = by_software(coefficients, software, lambda p: p.flat_copy_at_init) > 0
    init = weights * np.where(flat & (zero < 3), 2.0, 1.0)
    init = np.maximum(init, weights + master)

    off_optimizer = np.where(table.offload_optimizer != Offload.NONE, 1.0, 0.0)
    off_optimizer = np.where(zero >= 3, off_optimizer * table.offload_ratio, off_optimizer)
    off_optimizer = np.where(zero >= 1, off_optimizer, 0.0)
    off_param = (table.offload_param != Offload.NONE) & (zero >= 3)
    on_gpu = 1 - off_optimizer
    host_states = (master + optimizer + 4.0 * optimizer_share) * off_optimizer
    nvme_optimizer = (table.offload_optimizer == Offload.NVME) & (zero >= 3)
    nvme_param = (table.offload_param == Offload.NVME) & (zero >= 3)
    host = np.where(nvme_optimizer, 0.0, host_states)
    host = host + np.where(off_param & ~nvme_param, weights, 0.0)
    nvme = np.where(nvme_optimizer, host_states, 0.0) + np.where(nvme_param, weights, 0.0)
    # offloaded gradients leave for the host bucket by bucket, from ZeRO 2 on
    leaves = np.where(zero >= 2, on_gpu, 1.0)
    # FSDP shards a 4-bit base; for DeepSpeed's ZeRO-3 it is no parameter, and stays whole
    quantized = training.lora is not None and training.lora.quantized_base
    frozen = element * np.where(quantized & ~casts, 1.0, weight_share)
    return Rates(
        weights=np.where(off_param, 0.0, weights),
        master=master * on_gpu,
        optimizer=optimizer * on_gpu,
        gradients=held * leaves,
        gradients_growing=growing * leaves,
        gradients_at_step=at_step * leaves,
        step=step * on_gpu,
        init=np.where(off_param, 0.0, init - master * off_optimizer),
        frozen=np.where(off_param, 0.0, frozen),
        host=host,
        nvme=nvme,
    )


def _step_bytes(
    coefficients: MemoryCoefficients, training: TrainingSpec, software: Ints, grad: Floats
) -> Floats:
    """fp32 copy of a 16-bit gradient, and the optimizer's temporaries, per updated parameter."""
    temporary = by_software(coefficients, software, lambda p: p.optimizer_temporary_bytes)
    if training.precision == "fp32":
        return temporary
    if not training.fp32_master:
        return temporary / 2  # as wide as the states
    copy = by_software(coefficients, software, lambda p: p.gradient_copy_bytes)
    return temporary + np.where(grad < 4, copy, 0.0)
