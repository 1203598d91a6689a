"""Gradients that are larger than a bucket, which ZeRO 1 keeps until the step.

A gradient of more than reduce_bucket_size elements is reduced where it is, outside the bucket; ZeRO
2 then clears it, ZeRO 1 does not (stage_1_and_2.py, extra_large_param_to_reduce). Measured with the
engine on fake tensors: Mixtral's stacked experts (0.94e9 elements a layer) under the default bucket
of 5e8.
"""

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.layout import Stages
from cost_model.memory.profile import by_software
from cost_model.plans import Bools, Floats, Offload, PlanTable
from cost_model.specs import Layer, ModelSpec, TrainingSpec


def stays(
    coefficients: MemoryCoefficients, model: ModelSpec, training: TrainingSpec, table: PlanTable
) -> Bools:
    """Whether a gradient of the plan may be larger than a bucket and stay [plans].

    As engines().frees has it of ZeRO 1, by columns of the plan itself.
    """
    if training.lora is not None or table.reduce_bucket.min(initial=2**62) >= _largest(model):
        return np.zeros(len(table), np.bool_)
    may: Bools = table.zero_stage == 1
    if not may.any():
        return may
    may &= table.overlap_comm & (table.grad_accum == 1) & (table.reduce_bucket < _largest(model))
    if training.fp32_grad_accum:
        may &= table.offload_optimizer != int(Offload.NONE)
    if may.any():
        profile = by_software(coefficients, table.software, "zero_engine") > 0
        may &= profile & ~table.pipelined
    return may


def oversized_elements(
    model: ModelSpec,
    table: PlanTable,
    stages: Stages,
    sharded: Floats,
    stacked: Bools,
    may: Bools,
) -> Floats:
    """Elements of the gradients of one stage that are larger than a bucket and stay [rows].

    sharded: over how many ranks the token table is cut; stacked: whether the experts of a layer are
    one tensor each; may: from `stays` [rows].
    """
    total: Floats = np.zeros(len(table))
    if not may.any():
        return total
    limit = np.where(may, table.reduce_bucket, np.inf)
    own = np.where(stages.has_embedding, 1.0, 0.0)
    if not model.tied_embeddings:
        own = own + np.where(stages.has_head, 1.0, 0.0)
    vocabulary = model.hidden * model.vocab / sharded
    total = total + own * np.where(vocabulary > limit, vocabulary, 0.0)
    for kind, layers in enumerate(stages.layers):
        for size, count in _matrices(model.hidden, model.kinds[kind]):
            each = size / table.tp
            total = total + layers * count * np.where(each > limit, each, 0.0)
        for size, experts in _experts(model.hidden, model.kinds[kind]):
            each = np.where(stacked, experts, 1) * size / table.tp
            held = layers * np.where(stacked, 1.0, experts / table.ep)
            total = total + held * np.where(each > limit, each, 0.0)
    return total


def _largest(model: ModelSpec) -> int:
    """Elements of the largest matrix of all."""
    sizes = [size for layer in model.kinds for size, _ in _matrices(model.hidden, layer)]
    sizes += [size * n for layer in model.kinds for size, n in _experts(model.hidden, layer)]
    return max(model.hidden * model.vocab, *sizes)


def _matrices(hidden: int, layer: Layer) -> list[tuple[int, int]]:
    found = []
    if layer.attention is not None and layer.attention.latent is None:
        a = layer.attention
        found += [(hidden * a.heads * a.head_dim, 1), (hidden * a.heads * a.value_head_dim, 1)]
        found += [(hidden * a.kv_heads * d, 1) for d in (a.head_dim, a.value_head_dim)]
    if layer.mlp is not None:
        found.append((hidden * layer.mlp.intermediate, 3 if layer.mlp.gated else 2))
    return found


def _experts(hidden: int, layer: Layer) -> list[tuple[int, int]]:
    """(elements of one expert's first matrix, experts), and the same of the second."""
    if layer.moe is None:
        return []
    one = layer.moe.intermediate * hidden
    return [(2 * one if layer.moe.gated else one, layer.moe.experts), (one, layer.moe.experts)]
