"""Gradients that are larger than a bucket, which ZeRO 1 keeps until the step.

A gradient of more than reduce_bucket_size elements is reduced where it is, outside the bucket; ZeRO
2 then clears it, ZeRO 1 does not (stage_1_and_2.py, extra_large_param_to_reduce). Measured with the
engine on fake tensors: Mixtral's stacked experts (0.94e9 elements a layer) under the default bucket
of 5e8.
"""

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.engines import is_pipelined
from cost_model.memory.layout import Stages
from cost_model.memory.profile import by_software
from cost_model.plans import Floats, Offload, PlanTable
from cost_model.specs import Layer, ModelSpec, TrainingSpec


def largest_kept(
    coefficients: MemoryCoefficients, model: ModelSpec, training: TrainingSpec, table: PlanTable
) -> Floats:
    """Elements of the largest gradient that does not stay [rows]; infinite where all go."""
    limits = np.full(len(table), np.inf)
    if training.lora is not None:
        return limits
    # engines().frees of ZeRO 1, for the columns that the work of a plan does not depend on
    frees = (table.zero_stage == 1) & table.overlap_comm & (table.grad_accum == 1)
    if training.fp32_grad_accum:
        frees &= table.offload_optimizer != Offload.NONE
    frees &= table.reduce_bucket < _largest(model)
    if frees.any():
        profile = by_software(coefficients, table.software, lambda p: p.zero_engine) > 0
        frees &= profile & ~is_pipelined(table)
        np.copyto(limits, table.reduce_bucket, where=frees)
    return limits


def oversized_elements(
    model: ModelSpec, table: PlanTable, stages: Stages, sharded: Floats, limit: Floats
) -> Floats:
    """Elements of the gradients of one stage that are above the limit [rows].

    sharded: over how many ranks the token table is cut; limit: from largest_kept [rows].
    """
    total: Floats = np.zeros(len(table))
    if not np.isfinite(limit).any():
        return total
    own = np.where(stages.has_embedding, 1.0, 0.0)
    if not model.tied_embeddings:
        own = own + np.where(stages.has_head, 1.0, 0.0)
    vocabulary = model.hidden * model.vocab / sharded
    total = total + own * np.where(vocabulary > limit, vocabulary, 0.0)
    for kind, layers in enumerate(stages.layers):
        for size, count in _matrices(model.hidden, model.kinds[kind]):
            mine = size / table.tp
            total = total + layers * count * np.where(mine > limit, mine, 0.0)
    return total


def _largest(model: ModelSpec) -> int:
    """Elements of the largest matrix of all."""
    sizes = [size for layer in model.kinds for size, _ in _matrices(model.hidden, layer)]
    return max(model.hidden * model.vocab, *sizes)


def _matrices(hidden: int, layer: Layer) -> list[tuple[int, int]]:
    found = []
    if layer.attention is not None and layer.attention.latent is None:
        a = layer.attention
        found += [(hidden * a.heads * a.head_dim, 1), (hidden * a.heads * a.value_head_dim, 1)]
        found += [(hidden * a.kv_heads * d, 1) for d in (a.head_dim, a.value_head_dim)]
    if layer.mlp is not None:
        found.append((hidden * layer.mlp.intermediate, 3 if layer.mlp.gated else 2))
    if layer.moe is not None:
        stacked = layer.moe.experts * layer.moe.intermediate * hidden
        found += [(2 * stacked if layer.moe.gated else stacked, 1), (stacked, 1)]
    return found
