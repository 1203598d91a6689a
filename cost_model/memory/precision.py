"""Bytes per element by training precision."""

from cost_model.calibration.memory import GradientBytes
from cost_model.specs import TrainingSpec


def element_bytes(training: TrainingSpec) -> int:
    """Bytes of a weight and of an activation in the training precision."""
    return 4 if training.precision == "fp32" else 2


def gradient_bytes(sizes: GradientBytes, training: TrainingSpec) -> float:
    """Bytes of an accumulated gradient element; the request overrides the software's default."""
    if not training.fp32_master:
        return float(element_bytes(training))
    if training.fp32_grad_accum is not None:
        return 4.0 if training.fp32_grad_accum else float(element_bytes(training))
    return {"bf16": sizes.bf16, "fp16": sizes.fp16, "fp32": sizes.fp32}[training.precision]
