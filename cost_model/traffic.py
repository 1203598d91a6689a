"""Which collectives a plan issues, how long they take, and what hides behind compute."""

from dataclasses import dataclass

import numpy as np

from cost_model.collectives import (
    Topology,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    point_to_point_seconds,
)
from cost_model.compute.head import parallel_loss
from cost_model.compute.layer import LayerTimes, rank_tokens
from cost_model.moe import all_to_all_bytes
from cost_model.plans import Floats, PlanTable, Software
from cost_model.specs.model import Layer, ModelSpec
from cost_model.specs.training import TrainingSpec


@dataclass(frozen=True)
class LayerTraffic:
    """Exposed seconds of one layer and one micro-batch, and bytes each rank sends [shapes].

    `*_forward` is also what a full recompute repeats.
    """

    tp_forward: Floats
    tp_backward: Floats
    sp_forward: Floats
    sp_backward: Floats
    ep_forward: Floats
    ep_backward: Floats
    tp_bytes: Floats
    """Sent in the forward pass."""
    sp_bytes: Floats
    ep_bytes: Floats
    collectives: Floats
    """Collectives of the forward pass that the host issues."""


def layer_traffic(
    model: ModelSpec,
    layer: Layer,
    training: TrainingSpec,
    table: PlanTable,
    topology: Topology,
    times: LayerTimes,
) -> LayerTraffic:
    """Traffic inside one layer [plans]; `table` is best one row per shape.

    Tensor parallel: one all-reduce per sub-layer and pass, or with sequence parallelism an
    all-gather and a reduce-scatter of the same bytes; one more gather in the backward pass hides
    behind the weight's gradient (arXiv 2205.05198, section 4.2.2). Ulysses: four all-to-alls, of
    a rank's queries, keys, values and outputs (arXiv 2309.14509, section 3.2). Ring attention:
    keys and values pass cp - 1 times, behind the attention core (arXiv 2310.01889, section 3).
    All-gather context parallelism gathers them first, with nothing to hide behind, again in the
    backward pass, where their gradients are scattered too (arXiv 2407.21783, section 3.3.2).
    Experts: dispatch and combine.
    """
    element = 4.0 if training.precision == "fp32" else 2.0
    tokens = rank_tokens(table, training.seq_len)
    one = np.ones_like(table.tp)
    sublayers = 1.0 if layer.parallel_residual else 2.0
    sublayers += 1.0 if layer.cross_attention is not None else 0.0
    payload = tokens * model.hidden * element
    reduce = all_reduce_seconds(topology, payload, table.tp, one)
    halves = 2.0 * all_gather_seconds(topology, payload, table.tp, one)
    tp_forward = sublayers * np.where(table.sequence_parallel, halves, reduce)
    columns = _column_matrices(layer, table)
    tp_backward = np.where(table.sequence_parallel, sublayers * halves, columns * reduce)
    if times.hides_traffic.any():
        # Megatron reduces the input's gradient beside the product of the weight's gradient
        beside = np.where(times.hides_traffic, times.backward / 3.0, 0.0)
        tp_backward = np.maximum(tp_backward - beside, 0.0) + 0.2 * np.minimum(tp_backward, beside)
    tp_share = (table.tp - 1) / table.tp

    sp_forward, sp_bytes = np.zeros(len(table)), np.zeros(len(table))
    sp_backward = np.zeros(len(table))
    attention = layer.attention
    if attention is not None:
        queries = attention.heads * (attention.head_dim + attention.value_head_dim) / table.tp
        keys = attention.kv_heads * (attention.head_dim + attention.value_head_dim) / table.tp
        moved = tokens * (queries + keys) * element
        switch = all_to_all_seconds(topology, moved / 4.0, table.sp, table.tp)
        ring = tokens * keys * element
        steps = table.cp - 1
        hop = point_to_point_seconds(topology, ring, table.tp * table.sp)
        pass_seconds = np.where(steps > 0, steps * hop, 0.0)
        core_backward = 2.5 * times.core_forward
        context_forward = np.maximum(pass_seconds - times.core_forward, 0.0)
        context_backward = np.maximum(2.0 * pass_seconds - core_backward, 0.0)
        if table.cp_all_gather.any():
            stride = table.tp * table.sp
            whole = all_gather_seconds(topology, ring * table.cp, table.cp, stride)
            context_forward = np.where(table.cp_all_gather, whole, context_forward)
            context_backward = np.where(table.cp_all_gather, 2.0 * whole, context_backward)
        sp_forward = 4.0 * switch + context_forward
        sp_backward = 4.0 * switch + context_backward
        sp_bytes = moved * (table.sp - 1) / table.sp + steps * ring

    ep, ep_bytes = np.zeros(len(table)), np.zeros(len(table))
    if layer.moe is not None:
        held = all_to_all_bytes(layer.moe, table, tokens, model.hidden)
        stride = table.tp * table.sp * table.cp
        ep = 2.0 * all_to_all_seconds(topology, held, table.ep, stride)
        ep_bytes = 2.0 * held * (table.ep - 1) / table.ep
    return LayerTraffic(
        tp_forward=tp_forward,
        tp_backward=tp_backward,
        sp_forward=sp_forward,
        sp_backward=sp_backward,
        ep_forward=ep,
        ep_backward=ep,
        tp_bytes=2.0 * sublayers * payload * tp_share,
        sp_bytes=sp_bytes,
        ep_bytes=ep_bytes,
        collectives=sublayers * (table.tp > 1) * np.where(table.sequence_parallel, 2.0, 1.0)
        + 4.0 * (table.sp > 1)
        + steps_of(table)
        + 2.0 * (table.ep > 1) * (layer.moe is not None),
    )


def _column_matrices(layer: Layer, table: PlanTable) -> Floats:
    """Column-parallel matrices whose input gradients are reduced one by one [plans].

    Megatron concatenates the matrices of a sub-layer. A PyTorch model keeps gate and up apart,
    and a Hugging Face one query, key and value too.
    """
    gated = (layer.mlp is not None and layer.mlp.gated) or layer.moe is not None
    attention = (layer.attention is not None) + (layer.cross_attention is not None)
    joined = attention + (0.0 if layer.parallel_residual else 1.0)
    apart = np.isin(table.software, (Software.DEEPSPEED, Software.DEEPSPEED_PIPELINE))
    whole = table.software == Software.DEEPSPEED
    return joined + np.where(apart & gated, 1.0, 0.0) + np.where(whole, 2.0 * attention, 0.0)


def edge_traffic(
    model: ModelSpec, training: TrainingSpec, table: PlanTable, topology: Topology
) -> tuple[Floats, Floats]:
    """Seconds of tensor-parallel traffic of the embedding and of the head per micro-batch [plans].

    A vocabulary-parallel table and head each reduce one hidden state (Megatron-LM, arXiv
    1909.08053, section 3). Where the loss is not parallel, the logits are gathered besides.
    """
    element = 4.0 if training.precision == "fp32" else 2.0
    tokens = rank_tokens(table, training.seq_len)
    one = np.ones_like(table.tp)
    state = all_reduce_seconds(topology, tokens * model.hidden * element, table.tp, one)
    logits = tokens * (model.head_matmul_params / model.hidden) * element
    gather = all_gather_seconds(topology, logits, table.tp, one)
    return state, state + np.where(parallel_loss(table), 0.0, gather)


def steps_of(table: PlanTable) -> Floats:
    """Exchanges of keys and values: ring steps beyond the first, or one gather [plans]."""
    ring = (table.cp - 1).astype(float)
    return np.where(table.cp_all_gather, np.minimum(ring, 1.0), ring)


def pipeline_hop_seconds(
    model: ModelSpec, training: TrainingSpec, table: PlanTable, topology: Topology
) -> tuple[Floats, Floats]:
    """Time and bytes of handing one micro-batch's activations to the next stage [plans].

    Megatron splits the tensor over the TP ranks and gathers it behind the network (arXiv
    2104.04473, section 4.1); with sequence parallelism it is split already. DeepSpeed's pipeline
    sends the whole from every TP rank.
    """
    element = 4.0 if training.precision == "fp32" else 2.0
    whole = rank_tokens(table, training.seq_len) * model.hidden * element
    split = table.sequence_parallel | (table.software == Software.MEGATRON)
    sent = np.where(split, whole / table.tp, whole)
    seconds = point_to_point_seconds(topology, sent, table.world_size // table.pp)
    piped = table.pp > 1
    return np.where(piped, seconds, 0.0), np.where(piped, sent, 0.0)
