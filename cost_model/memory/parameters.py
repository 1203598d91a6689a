"""How many parameters one rank of one stage holds, dense and expert."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.layout import Stages
from cost_model.memory.profile import by_software
from cost_model.plans import Bools, Floats, PlanTable
from cost_model.specs import Layer, ModelSpec, TrainingSpec


@dataclass(frozen=True)
class Weights:
    """Parameters of one rank [rows]; experts shard over fewer ranks under ZeRO."""

    dense: Floats
    expert: Floats
    largest: Floats
    """Parameters of the largest unit that ZeRO-3 gathers at once: a layer, or the embedding."""
    layer: Floats
    """Parameters of the largest layer."""

    @property
    def all(self) -> Floats:
        """Dense and expert together."""
        return self.dense + self.expert


def dense_per_layer(layer: Layer, tp: Floats) -> Floats:
    """Dense parameters of one layer on one tensor-parallel rank."""
    return layer.tp_sharded_params / tp + layer.replicated_params


def embedding_params(model: ModelSpec, tp: Floats, shards: Bools) -> Floats:
    """The token table over TP where the software shards it; position and type tables whole."""
    table = min(model.hidden * model.vocab, model.embedding_params)
    return table / np.where(shards, tp, 1.0) + (model.embedding_params - table)


def head_params(model: ModelSpec, tp: Floats, shards: Bools, has_embedding: Bools) -> Floats:
    """Final norm and output matrix. A tied matrix is held again by a last stage that is no first.

    (Megatron and DeepSpeed's TiedLayerSpec keep a copy on both stages and all-reduce its gradient.)
    """
    matrix = 0 if model.tied_embeddings else min(model.head_matmul_params, model.head_params)
    split = np.where(shards, tp, 1.0)
    own = matrix / split + (model.head_params - matrix)
    if not model.tied_embeddings:
        return own
    return own + np.where(has_embedding, 0.0, model.head_matmul_params / split)


def stacks_experts(coefficients: MemoryCoefficients, table: PlanTable) -> Bools:
    """Whether the experts of a layer are stacked in two tensors and applied one after the other
    (transformers, as of version 5); cut over ranks or given a capacity they are modules of their
    own (DeepSpeed's layer) [rows]."""
    found: Bools = (table.ep == 1) & (table.capacity_factor == 0)
    return found & (by_software(coefficients, table.software, "zero_engine") > 0)


def largest_matrix(
    model: ModelSpec, training: TrainingSpec, tp: Floats, shards: Bools, stacked: Bools
) -> Floats:
    """Trained parameters of the largest single tensor [rows]: the token table, or a layer's widest
    matrix. stacked: from `stacks_experts` [rows]."""
    if training.lora is not None:
        return np.zeros_like(tp)
    table = model.hidden * model.vocab / np.where(shards, tp, 1.0)
    widest: Floats = np.zeros_like(tp)
    for layer in model.kinds:
        if layer.mlp is not None:
            widest = np.maximum(widest, float(model.hidden * layer.mlp.intermediate))
        if layer.moe is not None:
            one = float(model.hidden * layer.moe.intermediate)
            both = one * layer.moe.experts * (2 if layer.moe.gated else 1)
            widest = np.maximum(widest, np.where(stacked, both, one))
    return np.maximum(table, widest / tp)


def stacked_expert_gradients(
    coefficients: MemoryCoefficients, model: ModelSpec, table: PlanTable
) -> Floats:
    """Elements of whole expert gradients alive at once, under DeepSpeed without experts over ranks.

    transformers stacks the experts of a layer in two tensors and applies them one after the other
    (MixtralExperts.forward): each expert's slice has a gradient of the whole stack. Three of the
    first (gate and up: the sum so far, the new one and the new sum) and one of the second are there
    in the engine on fake tensors, which autograd adds out of place; on a GPU it may add in place.
    A grouped product has one of each.
    """
    most = 0.0
    for layer in model.kinds:
        if layer.moe is not None:
            first, second = (2, 1) if layer.moe.gated else (1, 1)
            share = (3 * first + second) / (first + second)
            most = max(most, layer.expert_params * share)
    stacked = stacks_experts(coefficients, table)
    return np.where(stacked, most / table.tp, 0.0)


def stage_weights(
    model: ModelSpec,
    stages: Stages,
    per_layer: tuple[Floats, ...],
    expert_per_layer: tuple[Floats, ...],
    embedding: Floats,
    head: Floats,
) -> Weights:
    """Parameters of the stages, from those of a layer of each kind [rows]."""
    dense = np.where(stages.has_embedding, embedding, 0.0)
    dense = dense + np.where(stages.has_head, head, 0.0)
    expert = np.zeros_like(dense)
    for kind, layer in enumerate(model.kinds):
        dense = dense + stages.layers[kind] * per_layer[kind]
        if layer.expert_params:
            expert = expert + stages.layers[kind] * expert_per_layer[kind]
    layer = np.maximum.reduce([p + e for p, e in zip(per_layer, expert_per_layer, strict=True)])
    return Weights(dense, expert, np.maximum(layer, embedding), layer)
