"""Which collectives a plan issues, how long they take, and what hides behind compute."""

from dataclasses import dataclass

import numpy as np

from cost_model.collectives import (
    Ring,
    Topology,
    all_gather_seconds,
    all_to_all_seconds,
    point_to_point_seconds,
)
from cost_model.compute.head import parallel_loss
from cost_model.compute.layer import LayerTimes, rank_tokens
from cost_model.moe import all_to_all_bytes
from cost_model.plans import Floats, PlanTable, Software, any_of
from cost_model.specs.model import Layer, ModelSpec
from cost_model.specs.training import TrainingSpec

_COVERED = 0.2
"""Share of covered traffic's time by which the products beside it grow: multiprocessors and memory
taken (Mist's published profiles of products beside NCCL on A100: 10 to 30 %)."""


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
    ring: Ring,
    times: LayerTimes,
) -> LayerTraffic:
    """Traffic inside one layer [plans]; `table` is best one row per shape.

    Tensor parallel: see `_tensor_parallel`. Ulysses: four all-to-alls, of
    a rank's queries, keys, values and outputs (arXiv 2309.14509, section 3.2). Ring attention:
    keys and values pass cp - 1 times, behind the attention core (arXiv 2310.01889, section 3).
    All-gather context parallelism gathers them first, with nothing to hide behind, again in the
    backward pass, where their gradients are scattered too (arXiv 2407.21783, section 3.3.2).
    Experts: dispatch and combine.
    """
    element = 4.0 if training.precision == "fp32" else 2.0
    tokens = rank_tokens(table, training.seq_len)
    sublayers = 1.0 if layer.parallel_residual else 2.0
    sublayers += 1.0 if layer.cross_attention is not None else 0.0
    payload = tokens * model.hidden * element
    tp_forward, tp_backward = _tensor_parallel(layer, table, ring, times, payload, sublayers)
    tp_share = (table.tp - 1) / table.tp

    sp_forward, sp_bytes = np.zeros(len(table)), np.zeros(len(table))
    sp_backward = np.zeros(len(table))
    attention = layer.attention
    if attention is not None:
        queries = attention.heads * (attention.head_dim + attention.value_head_dim) / table.tp
        keys = attention.kv_heads * (attention.head_dim + attention.value_head_dim) / table.tp
        moved = tokens * (queries + keys) * element
        switch = all_to_all_seconds(topology, moved / 4.0, table.sp, table.tp)
        passed = tokens * keys * element
        steps = table.cp - 1
        hop = point_to_point_seconds(topology, passed, table.tp * table.sp)
        pass_seconds = np.where(steps > 0, steps * hop, 0.0)
        core_backward = 2.5 * times.core_forward
        context_forward = np.maximum(pass_seconds - times.core_forward, 0.0)
        context_backward = np.maximum(2.0 * pass_seconds - core_backward, 0.0)
        if table.cp_all_gather.any():
            stride = table.tp * table.sp
            whole = all_gather_seconds(topology, passed * table.cp, table.cp, stride)
            context_forward = np.where(table.cp_all_gather, whole, context_forward)
            context_backward = np.where(table.cp_all_gather, 2.0 * whole, context_backward)
        sp_forward = 4.0 * switch + context_forward
        sp_backward = 4.0 * switch + context_backward
        sp_bytes = moved * (table.sp - 1) / table.sp + steps * passed

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


def _tensor_parallel(
    layer: Layer,
    table: PlanTable,
    ring: Ring,
    times: LayerTimes,
    payload: Floats,
    sublayers: float,
) -> tuple[Floats, Floats]:
    """Exposed seconds of tensor-parallel traffic of both passes [plans].

    One all-reduce per sub-layer and pass, or with sequence parallelism an all-gather and a
    reduce-scatter of the same bytes, and in the backward pass one more gather. Megatron runs what
    the input's gradient and the gathered input need beside the products of the same matrix; the
    gather of the output's gradient has nothing beside it (arXiv 2205.05198, section 4.2.2).
    tp_overlap cuts all of it into chunks that run beside the chunks of their product.
    """
    sharded = table.sequence_parallel
    reduce, half = ring.all_reduce(payload), ring.all_gather(payload)
    forward = sublayers * np.where(sharded, 2.0 * half, reduce)
    backward = np.where(sharded, 2.0 * sublayers * half, _column_matrices(layer, table) * reduce)
    megatron = any_of(table.software, Software.MEGATRON)
    if not megatron.any():
        return forward, backward
    exposed = np.where(sharded, sublayers * half, 0.0)
    # the gradients of weights are a third of a layer's products, those of the column-parallel
    # matrices, with their inputs', about as much again
    beside = np.where(sharded, times.backward / 2.0, times.backward / 3.0)
    backward = np.where(megatron, exposed + _beside(backward, beside, _COVERED), backward)
    chunked = megatron & sharded & table.tp_overlap
    if chunked.any():
        left = _COVERED + 0.5 / table.tp  # of a scatter the last chunk is covered by nothing
        forward = np.where(chunked, _beside(forward, times.forward, left), forward)
        whole = 3.0 * sublayers * half
        backward = np.where(chunked, _beside(whole, times.backward, left), backward)
    return forward, backward


def _beside(traffic: Floats, compute: Floats, left: float | Floats) -> Floats:
    """Seconds that traffic adds to compute beside it, of whose length `left` stays [plans]."""
    exposed: Floats = np.maximum(traffic - compute, 0.0) + left * np.minimum(traffic, compute)
    return exposed


def _column_matrices(layer: Layer, table: PlanTable) -> Floats:
    """Column-parallel matrices whose input gradients are reduced one by one [plans].

    Megatron concatenates the matrices of a sub-layer. A PyTorch model keeps gate and up apart,
    and a Hugging Face one query, key and value too.
    """
    gated = (layer.mlp is not None and layer.mlp.gated) or layer.moe is not None
    attention = (layer.attention is not None) + (layer.cross_attention is not None)
    joined = attention + (0.0 if layer.parallel_residual else 1.0)
    apart = any_of(table.software, Software.DEEPSPEED, Software.DEEPSPEED_PIPELINE)
    whole = any_of(table.software, Software.DEEPSPEED)
    return joined + np.where(apart & gated, 1.0, 0.0) + np.where(whole, 2.0 * attention, 0.0)


def edge_traffic(
    model: ModelSpec, training: TrainingSpec, table: PlanTable, ring: Ring
) -> tuple[Floats, Floats]:
    """Seconds of tensor-parallel traffic of the embedding and of the head per micro-batch [plans].

    A vocabulary-parallel table and head each reduce one hidden state (Megatron-LM, arXiv
    1909.08053, section 3). Where the loss is not parallel, the logits are gathered besides.
    """
    element = 4.0 if training.precision == "fp32" else 2.0
    tokens = rank_tokens(table, training.seq_len)
    state = ring.all_reduce(tokens * model.hidden * element)
    logits = tokens * (model.head_matmul_params / model.hidden) * element
    gather = ring.all_gather(logits)
    return state, state + np.where(parallel_loss(table), 0.0, gather)


def steps_of(table: PlanTable) -> Floats:
    """Exchanges of keys and values: ring steps beyond the first, or one gather [plans]."""
    ring = (table.cp - 1).astype(float)
    return np.where(table.cp_all_gather, np.minimum(ring, 1.0), ring)


def pipeline_hop_seconds(
    model: ModelSpec, training: TrainingSpec, table: PlanTable, topology: Topology, ring: Ring
) -> tuple[Floats, Floats]:
    """Time and bytes of handing one micro-batch's activations to the next stage [plans].

    split_hand_over splits the tensor over the TP ranks and gathers it behind the network
    (arXiv 2104.04473, section 4.1); with sequence parallelism it is split already. Else every TP
    rank sends the whole.
    """
    element = 4.0 if training.precision == "fp32" else 2.0
    whole = rank_tokens(table, training.seq_len) * model.hidden * element
    split = table.sequence_parallel | table.split_hand_over
    sent = np.where(split, whole / table.tp, whole)
    seconds = point_to_point_seconds(topology, sent, table.world_size // table.pp)
    gather = split & ~table.sequence_parallel & (table.tp > 1)
    seconds = seconds + np.where(gather, ring.all_gather(whole), 0.0)
    piped = table.pp > 1
    return np.where(piped, seconds, 0.0), np.where(piped, sent, 0.0)


def hand_overs(table: PlanTable) -> Floats:
    """Transfers that a stage waits for in each micro-batch [plans].

    Megatron and PyTorch send one way and receive the other at once: one wait behind the forward
    and one behind the backward pass. DeepSpeed's engine runs its instructions in turn, so that a
    stage between two others waits for four (runtime/pipe/schedule.py, TrainSchedule).
    """
    in_turn = (Software.DEEPSPEED, Software.DEEPSPEED_PIPELINE, Software.MEGATRON_DEEPSPEED)
    between = any_of(table.software, *in_turn) & (table.pp > 2)
    return np.where(between, 4.0, 2.0)
