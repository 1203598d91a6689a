"""What the optimizer's step takes for a while, beside the states."""

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.engines import Engines
from cost_model.memory.profile import by_software
from cost_model.plans import Floats, Ints
from cost_model.specs import TrainingSpec

FUSED = ("adamw", "lion", "adam8bit", "paged_adam8bit")
"""Optimizers that DeepSpeed or their own library runs as one kernel, without temporaries
(ops/adam/fused_adam.py), where the config names them."""


UNFUSED = ("adam8bit", "paged_adam8bit")
"""Optimizers that the 16-bit optimizer of ZeRO 0 gives one gradient after the other in fp32,
without a flat copy (engine.py _configure_fp16_optimizer, fp16/unfused_optimizer.py)."""

TEMPORARIES = {"adafactor": 8.0}
"""Bytes of temporaries of an optimizer of torch where they are not one fp32 copy."""


def update_bytes(
    coefficients: MemoryCoefficients,
    training: TrainingSpec,
    software: Ints,
    engine: Engines,
    grad: Floats,
) -> Floats:
    """Transients of the step per parameter that this rank updates [rows].

    grad: bytes of a gradient element [rows].
    DeepSpeed flattens the 16-bit gradient (2), copies it to fp32 (4), then runs the optimizer; the
    16-bit optimizer of ZeRO 0 casts each gradient (4) and flattens those (4). An fp32 gradient
    needs no copy. Measured with the engine on fake tensors.
    """
    temporary = by_software(coefficients, software, "optimizer_temporary_bytes")
    if training.optimizer in TEMPORARIES:
        temporary = np.maximum(temporary, TEMPORARIES[training.optimizer])
    if training.optimizer in FUSED:
        fused = by_software(coefficients, software, "fused_optimizer") > 0
        temporary = np.where(fused, 0.0, temporary)
    if training.precision == "fp32":
        return np.where(engine.partitioned, np.maximum(temporary, 4.0), temporary)
    if not training.fp32_master:
        halves = temporary / 2  # as wide as the states
        return np.where(engine.partitioned | engine.gathered, np.maximum(halves, 2.0), halves)
    copy = by_software(coefficients, software, "gradient_copy_bytes")
    if training.optimizer in UNFUSED:
        copy = np.where(engine.whole, 4.0, copy)
    copied = np.where(grad < 4, copy, 0.0)
    narrow = grad < 4
    sharded = np.where(narrow, np.maximum(6.0, 4.0 + temporary), temporary)
    total = np.where(engine.partitioned | engine.gathered, sharded, temporary + copied)
    total = np.where(engine.whole, np.maximum(copied, 4.0 + temporary), total)
    return np.where(engine.flat, np.where(narrow, 4.0, 0.0) + temporary, total)
