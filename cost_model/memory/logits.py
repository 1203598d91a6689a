"""Logits: kept for the backward pass, and alive at the worst moment of the loss."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.activations import Shards
from cost_model.memory.precision import element_bytes
from cost_model.memory.profile import by_software
from cost_model.plans import Floats, PlanTable
from cost_model.specs import ModelSpec, TrainingSpec


@dataclass(frozen=True)
class LogitBytes:
    """Bytes of one micro-batch's logits [rows]."""

    kept: Floats
    """Through the backward pass of the layers."""
    peak: Floats
    """At the worst moment of the loss."""
    cached: Floats
    """Freed before that moment, but still held by the allocator."""


FP32_LOSS = 12.0
"""Bytes a logit of a loss that works in fp32: log-softmax and the gradients of both its ends. A
smaller one works in the type of the logits."""

CHUNKS = 8
"""Parts of a chunked loss (torchtune's default; Liger chooses about vocab / hidden)."""


def logit_bytes(
    model: ModelSpec,
    training: TrainingSpec,
    coefficients: MemoryCoefficients,
    table: PlanTable,
    on: Shards,
) -> LogitBytes:
    """The logits of one micro-batch on the last stage.

    With an fp32 run there is no 16-bit copy to cast from. A fused loss reads the logits as they are
    and leaves their gradient.
    """
    software = table.software
    kept = by_software(coefficients, software, "logit_kept_bytes")
    peak = by_software(coefficients, software, "logit_peak_bytes")
    if training.precision == "fp32":
        kept = np.maximum(kept, 4.0)
    parallel = by_software(coefficients, software, "vocabulary_parallel_loss") > 0
    if training.fused_loss:
        element = element_bytes(training)
        kept, peak = np.full_like(kept, element), np.full_like(peak, 2 * element)
    gather = by_software(coefficients, software, "logit_gather_bytes")
    peak = peak + gather * (1 - 1 / on.tp)
    wider = on.element / element_bytes(training)
    in_16_bits = peak < FP32_LOSS
    kept, peak = (np.where(in_16_bits, value * wider, value) for value in (kept, peak))
    logits = on.tokens * model.vocab / np.where(parallel, on.tp, 1.0)
    chunked = table.chunked_loss
    cached = by_software(coefficients, software, "logit_cached_bytes")
    return LogitBytes(
        kept=logits * np.where(chunked, 0.0, kept),
        peak=logits * np.where(chunked, peak / CHUNKS, peak),
        cached=logits * np.where(chunked | training.fused_loss, 0.0, cached),
    )
