"""Bytes per parameter of weights, gradients, optimizer states and master copy, and where they live.

Mixed precision with Adam holds 2 bytes of weights, 2 or 4 of gradients, 4 of master copy and 8 of
moments a parameter; ZeRO divides optimizer (1), gradients (2) and weights (3) by the data-parallel
ranks (arXiv 1910.02054, section 5). Megatron's distributed optimizer holds 6 + 12 / d.
"""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.engines import Engines
from cost_model.memory.gradients import gradients
from cost_model.memory.precision import element_bytes
from cost_model.memory.profile import by_software, gradient_column
from cost_model.memory.sub_groups import RATIO_GROUPS
from cost_model.memory.update import update_bytes
from cost_model.plans import Floats, Offload, PlanTable
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

EIGHT_BIT = ("adam8bit", "paged_adam8bit")


def optimizer_bytes(training: TrainingSpec) -> float:
    """Bytes of optimizer state per parameter; without a master copy states have 16 bits too."""
    full = OPTIMIZER_BYTES[training.optimizer]
    whole_fp32 = training.fp32_master or training.optimizer in EIGHT_BIT
    return full if whole_fp32 else full * element_bytes(training) / 4


@dataclass(frozen=True)
class Rates:
    """Bytes per parameter of one rank's stage [rows]: of the GPU unless said."""

    weights: Floats
    master: Floats
    optimizer: Floats
    gradients: Floats
    """Held while the forward pass of the last micro-batch runs."""
    gradients_growing: Floats
    """What the backward pass of the last micro-batch adds by its end."""
    gradients_at_step: Floats
    """Still there when the optimizer begins."""
    gradients_kept: Floats
    """There from step to step."""
    step: Floats
    """fp32 gradient copy and optimizer temporaries."""
    init: Floats
    """What the engine makes beside the weights when it starts."""
    flattened: Floats
    """A second copy of the weights while they are flattened, on the GPU in any case."""
    flattened_with_room: Floats
    """The same where the GPU has room for it; else the host does it (stage_1_and_2.py)."""
    frozen: Floats
    """Per frozen parameter, in 16-bit equivalents."""
    away: Floats
    """Elements of the optimizer that are offloaded, per parameter of this rank's stage."""
    weights_away: Floats
    """The same of 16-bit weights."""


def state_rates(
    coefficients: MemoryCoefficients,
    training: TrainingSpec,
    table: PlanTable,
    engine: Engines,
    ranks: Floats,
) -> Rates:
    """Rates of every plan of a table.

    engine: its optimizer wrappers [rows].
    ranks: over which ZeRO shards: dp sp cp for dense parameters, that over ep for experts.
    """
    software, zero = table.software, table.zero_stage
    element = float(element_bytes(training))
    mixed = element == 2 and training.fp32_master
    # FSDP keeps fp32 parameters, sharded from SHARD_GRAD_OP (ZeRO 2) on, and casts them on use
    casts = by_software(coefficients, software, "holds_16bit_weights") == 0
    grad = gradient_column(coefficients, training, software)
    optimizer_share = np.where((zero >= 1) | engine.flat, 1 / ranks, 1.0)
    weight_share = np.where(zero >= np.where(casts, 2, 3), 1 / ranks, 1.0)

    weights = element * weight_share
    master = np.zeros(len(table))
    if mixed:
        copy = by_software(coefficients, software, "master_bytes")
        master = np.where(training.precision == "bf16", copy, 4.0)
        master = master * np.where(casts, weight_share, optimizer_share)
        if training.lora is None:
            weights = np.where(casts, 0.0, weights)
    elif element == 4:
        # ZeRO 1 and 2 update a clone of this rank's part, also where it has fp32 already
        master = np.where(engine.partitioned, 4.0 * optimizer_share, master)
    optimizer = optimizer_bytes(training) * optimizer_share
    if training.optimizer == "adafactor":  # a flat partition has no rows and columns to factor
        flat = engine.whole | engine.flat | engine.partitioned | engine.gathered
        optimizer = np.where(flat, 4.0 * optimizer_share, optimizer)
    held = gradients(coefficients, training, table, engine, casts, grad, ranks)

    off_optimizer = np.where(table.offload_optimizer != int(Offload.NONE), 1.0, 0.0)
    off_optimizer = np.where(zero >= 3, off_optimizer * table.offload_ratio, off_optimizer)
    off_optimizer = np.where(zero >= 1, off_optimizer, 0.0)
    off_param = (table.offload_param != int(Offload.NONE)) & (zero >= 3)
    on_gpu = 1 - off_optimizer
    # FSDP shards a 4-bit base; for DeepSpeed's ZeRO-3 it is no parameter, and stays whole
    quantized = training.lora is not None and training.lora.quantized_base
    frozen = element * np.where(quantized & ~casts, 1.0, weight_share)
    step = update_bytes(coefficients, training, software, engine, grad) * optimizer_share
    # a sub-group at a time, by torch's AdamW and its two temporaries (stage3.py backup_optimizer)
    few = engine.gathered & (off_optimizer > 0) & (on_gpu > 0)
    step = np.where(few, 8.0 * optimizer_share / RATIO_GROUPS, step * on_gpu)
    flattens = by_software(coefficients, software, "flattens_gradients") > 0
    step = step + np.where(flattens & engine.partitioned & (zero == 1), element, 0.0)
    copies = by_software(coefficients, software, "flat_copy_at_init") > 0
    return Rates(
        weights=np.where(off_param, 0.0, weights),
        master=master * on_gpu,
        optimizer=optimizer * on_gpu,
        gradients=held.held,
        gradients_growing=held.growing,
        gradients_at_step=held.at_step,
        gradients_kept=held.kept,
        step=step,
        init=_made_at_init(engine, master, optimizer, grad, element, optimizer_share, on_gpu),
        flattened=np.where((copies & (zero < 3)) | engine.flat | engine.whole, weights, 0.0),
        flattened_with_room=np.where(engine.partitioned, weights, 0.0),
        frozen=np.where(off_param, 0.0, frozen),
        away=off_optimizer * optimizer_share,
        weights_away=np.where(off_param, weight_share, 0.0),
    )


def _made_at_init(
    engine: Engines,
    master: Floats,
    optimizer: Floats,
    grad: Floats,
    element: float,
    share: Floats,
    on_gpu: Floats,
) -> Floats:
    """Bytes per parameter beside the weights when the engine has made its states [rows].

    The 16-bit optimizer of ZeRO 0 makes fp32 gradients and steps once, so that the moments exist;
    BF16_Optimizer makes its flat gradient; ZeRO 1 and 2 make a gradient of this rank's part, and
    let it go again. What is offloaded passes through the GPU in 16 bits.
    """
    fp32 = 4.0 * share
    made = np.where(engine.partitioned, (master + fp32) * on_gpu, master * on_gpu)
    made = np.where(engine.partitioned & (on_gpu == 0), element * share, made)
    made = np.where(engine.whole, master + optimizer + fp32, made)
    return np.where(engine.flat, master + grad, made)
