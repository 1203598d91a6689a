"""Which operators each training software fuses: how often a layer's activations pass memory, and
how many operators the host issues.

Passes are reads and writes of a tensor of the training precision; each figure counts the kernels
of the published implementation. Columns are software (order of the Software enum) where the
fusing differs.
"""

from dataclasses import dataclass

import numpy as np

from cost_model.plans import Bools, Floats, Ints, Software, any_of
from cost_model.specs.model import Layer, ModelSpec
from cost_model.specs.training import TrainingSpec

_FUSED = np.zeros(len(Software), bool)
_FUSED[[Software.MEGATRON_DEEPSPEED, Software.MEGATRON]] = True
"""Megatron-LM's JIT fuses bias, dropout and residual into one kernel, and bias and activation
into another (arXiv 2104.04473, section 4.2)."""

_NORM_FORWARD = {"layernorm": (3.0, 3.0), "rmsnorm": (2.5, 24.0)}
_NORM_BACKWARD = {"layernorm": (10.0, 10.0), "rmsnorm": (6.0, 54.0)}
"""Passes of one norm, fused and not. A layer norm is always one kernel; its backward pass reduces
two gradients over all tokens, about ten passes (Mist's published profiles, EuroSys 2025: 101 and
366 us for 40 MiB on A100). An RMS norm has one gradient to reduce. Written in PyTorch it casts to
fp32, squares, averages, scales, casts back and scales again: 36 bytes an element forward and 82
backward, reads and writes counted operator by operator, of which the averages over the width and
the sums over all tokens run well below the streaming rate: a third more."""
_FAST_NORM_BACKWARD = 5.0
"""Passes backward of Megatron's layer norm since 2022 (apex's FastLayerNorm, Transformer Engine):
a row stays in registers, so that input and gradient are read once and the sums over tokens cost
little more than what a block writes of them."""


@dataclass(frozen=True)
class Passes:
    """Passes over memory of one layer's element-wise kernels, and operator counts [shapes]."""

    norm_forward: Floats
    """Over tokens x hidden."""
    norm_backward: Floats
    residual_forward: Floats
    residual_backward: Floats
    activation_forward: Floats
    """Over tokens x intermediate."""
    activation_backward: Floats
    rotary_forward: Floats
    """Over tokens x query and key width: position and layout changes."""
    rotary_backward: Floats
    operators: Floats
    """Operators of the forward pass that the host issues, norms and attention included."""


def passes(
    model: ModelSpec, layer: Layer, training: TrainingSpec, software: Ints, compiled: Bools
) -> Passes:
    """Passes of one layer under each shape's software."""
    fused = _FUSED[software] | compiled
    fused_norm = fused & (model.norm == "layernorm") | training.fused_norm | compiled
    if model.norm == "layernorm":
        fused_norm = np.ones_like(fused)
    norms = float(layer.norms)
    norm_backward = np.where(fused_norm, *_NORM_BACKWARD[model.norm])
    if model.norm == "layernorm":
        fast = any_of(software, Software.MEGATRON)
        norm_backward = np.where(fast, _FAST_NORM_BACKWARD, norm_backward)
    sublayers = 1.0 if layer.parallel_residual else 2.0
    dropout = training.dropout > 0
    gated = layer.mlp is not None and layer.mlp.gated
    gated |= layer.moe is not None and layer.moe.gated
    rotary = model.position == "rotary"
    rotation = np.where(compiled | any_of(software, Software.MEGATRON), 2.0, 8.0)
    residual = 3.0 + (0.5 if dropout else 0.0)
    loose_residual = 3.0 + (2.5 if dropout else 0.0)
    score_operators = {"eager": 9.0, "fused_softmax": 4.0}.get(training.attention, 1.0)
    score_operators += 1.0 if dropout and training.attention in ("eager", "fused_softmax") else 0.0
    return Passes(
        norm_forward=norms * np.where(fused_norm, *_NORM_FORWARD[model.norm]),
        norm_backward=norms * norm_backward,
        residual_forward=sublayers * np.where(fused, residual, loose_residual),
        residual_backward=sublayers * np.where(fused, residual, loose_residual),
        activation_forward=np.where(fused, 3.0 if gated else 2.0, 5.0 if gated else 4.0),
        activation_backward=np.where(fused, 5.0 if gated else 3.0, 8.0 if gated else 6.0),
        rotary_forward=2.0 + rotary * rotation,
        rotary_backward=2.0 + rotary * rotation,
        operators=np.where(
            compiled,
            12.0,
            6.0 * 2  # products with their views
            + score_operators
            + norms * np.where(fused_norm, 1.0, 7.0)
            + sublayers * np.where(fused, 1.0, 2.0 + dropout)
            + np.where(fused, 1.0, 3.0)
            + 12.0 * rotary
            + 4.0,
        ),
    )
