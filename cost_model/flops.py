"""FLOPs that a model asks for, whatever runs it."""

import numpy as np

from cost_model.compute.attention import core_flops
from cost_model.memory.adapters import adapter_params
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec


def forward_flops(model: ModelSpec, training: TrainingSpec) -> tuple[float, float]:
    """FLOPs of one sequence's forward pass: of its matrix products, and of its attention cores.

    Twice the weights that a token passes, head included (arXiv 2205.05198, appendix A); the
    cores at the keys that the mask lets through.
    """
    products = 2.0 * model.head_matmul_params
    core = 0.0
    for kind, count in zip(model.kinds, model.layer_counts, strict=True):
        active = float(kind.matmul_params)
        if kind.moe is not None:
            active += kind.expert_params * kind.moe.top_k / kind.moe.experts
        products += 2.0 * active * count
        for attention in (kind.attention, kind.cross_attention):
            if attention is not None:
                core += core_flops(attention, training.seq_len) * count
    return products * training.seq_len, core


def step_flops(model: ModelSpec, training: TrainingSpec) -> float:
    """Model FLOPs of one sequence, forward and backward, without recompute.

    The backward pass of a product is two products, one where the weight is frozen; that of the
    core is counted as twice its forward pass (FlashAttention's own recomputation is not the
    model's: arXiv 2307.08691, section 4.1).
    """
    products, core = forward_flops(model, training)
    return products * (2.0 if training.lora is not None else 3.0) + 3.0 * core


def trainable_share(model: ModelSpec, training: TrainingSpec) -> float:
    """Share of the parameters that are updated: all of them, or the low-rank adapters."""
    if training.lora is None:
        return 1.0
    one = np.ones(1)
    adapters = [float(adapter_params(model, kind, training, one)[0]) for kind in model.kinds]
    held = sum(a * count for a, count in zip(adapters, model.layer_counts, strict=True))
    return min(1.0, held / model.params)
