"""LoRA: a frozen base and trained low-rank adapters (arXiv 2106.09685); 4-bit base for QLoRA."""

import numpy as np

from cost_model.memory.precision import element_bytes
from cost_model.plans import Floats
from cost_model.specs import Layer, ModelSpec, TrainingSpec

NF4_BYTES = 0.5 + 4 / 64
"""4 bits, and one fp32 scale per block of 64 (arXiv 2305.14314, without double quantisation)."""

NF4_DOUBLE_BYTES = 0.5 + (1 + 4 / 256) / 64
"""The scales in 8 bits, and one fp32 constant for 256 of them: 0.127 bits a weight, not 0.5 (arXiv
2305.14314, section 3)."""


def frozen_weight_bytes(training: TrainingSpec) -> float:
    """Bytes of a frozen matrix element; 0 where nothing is frozen."""
    if training.lora is None:
        return 0.0
    if training.lora.quantized_base:
        return NF4_DOUBLE_BYTES if training.lora.double_quantized else NF4_BYTES
    return float(element_bytes(training))


def adapter_params(model: ModelSpec, layer: Layer, training: TrainingSpec, tp: Floats) -> Floats:
    """Trained parameters of one layer: r (inputs + outputs) for each adapted matrix.

    The sharded side of each pair divides by TP, the other is replicated.
    """
    if training.lora is None:
        return np.zeros_like(tp)
    hidden = model.hidden
    whole, split = 0, 0
    for attention in (layer.attention, layer.cross_attention):
        if attention is None:
            continue
        kv = attention.kv_heads * (attention.head_dim + attention.value_head_dim)
        whole += 4 * hidden
        split += attention.heads * (attention.head_dim + attention.value_head_dim) + kv
    if training.lora.targets == "all_linear":
        for mlp in (layer.mlp, layer.moe):
            if mlp is None:
                continue
            matrices = 3 if mlp.gated else 2
            width = mlp.intermediate * (layer.moe.experts if mlp is layer.moe and layer.moe else 1)
            whole += matrices * hidden
            split += matrices * width
    return training.lora.rank * (whole + split / tp)


def adapter_inputs(layer: Layer, hidden: int, training: TrainingSpec) -> float:
    """Widths of the inputs of a layer's adapters; query, key and value read one."""
    if training.lora is None:
        return 0.0
    width = sum(hidden for a in (layer.attention, layer.cross_attention) if a is not None)
    if training.lora.targets == "all_linear":
        for attention in (layer.attention, layer.cross_attention):
            if attention is not None:
                width += attention.heads * attention.value_head_dim
        if layer.mlp is not None:
            width += hidden * (2 if layer.mlp.gated else 1) + layer.mlp.intermediate
    return float(width)


def widest_matrix_bytes(model: ModelSpec, tp: Floats) -> Floats:
    """A layer's widest matrix in 16 bits, as a 4-bit one is expanded for each product (arXiv
    2305.14314)."""
    widest = 0
    for layer in model.kinds:
        for attention in (layer.attention, layer.cross_attention):
            if attention is not None:
                widest = max(widest, attention.heads * attention.head_dim)
        for mlp in (layer.mlp, layer.moe):
            if mlp is not None:
                widest = max(widest, mlp.intermediate)
    return 2.0 * model.hidden * widest / tp
