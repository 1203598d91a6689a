"""What the work of a plan takes on one rank of one stage, apart from how states are sharded."""

from dataclasses import dataclass, fields

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.activations import LayerBytes, layer_bytes, layer_input_bytes, shards
from cost_model.memory.adapters import (
    adapter_params,
    frozen_weight_bytes,
    widest_matrix_bytes,
)
from cost_model.memory.layout import Stages, layers_in_flight
from cost_model.memory.logits import LogitBytes, logit_bytes
from cost_model.memory.oversized import oversized_elements, stays
from cost_model.memory.parameters import (
    dense_per_layer,
    embedding_params,
    head_params,
    largest_matrix,
    stacked_expert_gradients,
    stacks_experts,
    stage_weights,
)
from cost_model.memory.precision import element_bytes
from cost_model.memory.profile import by_software
from cost_model.memory.states import EIGHT_BIT, OPTIMIZER_BYTES
from cost_model.plans import Bools, Floats, PlanTable, Recompute
from cost_model.specs import ModelSpec, TrainingSpec

FILLED = 1_000_000_000
"""Parameters of two buckets of ZeRO-3 by default."""

RECEIVED = 4.0
"""Tensors that came from the stage before, or go back to it, on the last stage of DeepSpeed's
pipeline: one buffer to receive into, two micro-batches' inputs and a gradient (pipe/engine.py)."""


@dataclass(frozen=True)
class StageWork:
    """One stage [rows]: parameters in elements, the rest in bytes."""

    dense: Floats
    """Trained parameters that shard over all data-parallel ranks."""
    expert: Floats
    """Trained parameters that shard over the ranks of one expert-parallel copy."""
    frozen: Floats
    """Frozen parameters, in 16-bit equivalents where they are quantised."""
    params: Floats
    """All parameters that a layer's use gathers."""
    largest: Floats
    """Parameters of the largest unit that is gathered at once."""
    layer: Floats
    """Parameters of the largest layer."""
    matrix: Floats
    """Parameters of the largest single tensor."""
    sliced: Floats
    """Parameters of stacked experts whose slices the layers keep for their backward pass."""
    wide: Floats
    """Times the 8-bit states that a token table's 32-bit ones take more."""
    replicated: Floats
    """Parameters beyond a fair share, where tensor-parallel ranks hold the same ones."""
    activations: Floats
    """Kept for the backward pass, over the micro-batches in flight."""
    of_layers: Floats
    """The same when the head's backward pass is done."""
    logits_peak: Floats
    logits_kept: Floats
    logits_cached: Floats
    gathers_cached: Floats
    """Blocks of gathered inputs that the allocator does not get back in time."""
    at_loss: Floats
    """Workspaces and weight gradients beside the logits."""
    in_layer: Floats
    """The largest layer's recomputed activations, transients and weight gradients."""
    oversized: Floats
    """Gradients larger than a bucket, which ZeRO 1 keeps until the step."""
    at_end: Floats
    """The same when all other activations are gone."""
    unsent: Floats
    """Activations left when ZeRO-3 sends a full bucket, beyond the transients of a layer, which
    come and go while it fills: those of two default buckets of parameters are done."""
    unreduced: Floats
    """Activations left when ZeRO 1 and 2 have reduced a first bucket of the default size, a layer
    later at most, and made what they keep of gradients."""
    between: Floats
    """Workspaces that are there at every moment."""
    on_host: Floats
    """Layer inputs that cpu_checkpointing keeps in host memory."""

    def quantities(self) -> dict[str, Floats]:
        """What bytes are counted per unit of, by name."""
        parameters = ("dense", "expert", "frozen", "params", "wide", "replicated")
        others = ("unsent", "unreduced", "largest", "layer", "matrix", "sliced")
        return {name: getattr(self, name) for name in (*parameters, *others)}


def joined(parts: list[StageWork]) -> StageWork:
    """Rows of several stages, one after another."""
    return StageWork(
        **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(StageWork)}
    )


@dataclass(frozen=True)
class PlanWork:
    """What does not depend on the stage [rows]."""

    per_layer: tuple[LayerBytes, ...]
    dense: tuple[Floats, ...]
    expert: tuple[Floats, ...]
    adapter: tuple[Floats, ...]
    embedding: Floats
    head: Floats
    """On a stage that holds the embedding too."""
    last_head: Floats
    """On one that does not: a tied matrix is held again."""
    checkpoint: Floats
    """One layer's input as it is kept for recomputation, on the GPU."""
    host_checkpoint: Floats
    """The same on the host."""
    head_input: Floats
    stage_output: Floats
    """What a stage of DeepSpeed's pipeline sends on, and keeps until its gradient is back: over TP
    where its ranks send parts (pipe/engine.py, `pipe_buffers`)."""
    matrix: Floats
    """Parameters of the largest single tensor."""
    logits: LogitBytes
    expert_gradient: Floats
    """Whole gradients of a layer's stacked experts."""
    slices: Bools
    """Whether experts are slices of stacked tensors."""
    stays: Bools
    """Whether a gradient larger than a bucket stays until the step."""
    vocabulary_ranks: Floats
    """Ranks over which the token table is cut."""
    gathers: Floats
    """Of a layer, blocks that the allocator does not get back in time."""
    layer_gradient: Floats
    """Weight gradients of one layer in the training precision, before they are accumulated."""
    cached_gradient: Floats
    """The part of layer_gradient that is never freed."""
    head_gradient: Floats
    workspace: Floats
    quantized_head: Bools
    """Whether the output matrix is quantised with a frozen base."""


def plan_work(
    coefficients: MemoryCoefficients, model: ModelSpec, training: TrainingSpec, table: PlanTable
) -> PlanWork:
    """The work of every plan of a (small) table of distinct ones."""
    on = shards(coefficients, model, training, table)
    element = element_bytes(training)
    software = table.software
    sharded = by_software(coefficients, software, "tp_shards_vocabulary") > 0
    caches = by_software(coefficients, software, "caches_weight_gradients")
    dense = tuple(dense_per_layer(layer, on.tp) for layer in model.kinds)
    layer_input = layer_input_bytes(model, training, on)
    checkpoint = layer_input / np.where(table.partition_activations, on.tp, 1.0)
    logits = logit_bytes(model, training, coefficients, table, on)
    adapter = tuple(adapter_params(model, layer, training, on.tp) for layer in model.kinds)
    layer_gradient = element * np.maximum.reduce(dense if training.lora is None else adapter)
    experts = np.zeros(len(table))
    if model.is_moe and training.lora is None:
        experts = element * stacked_expert_gradients(coefficients, model, table)
    if training.lora is not None and training.lora.quantized_base:
        layer_gradient = layer_gradient + widest_matrix_bytes(model, on.tp)
    # added up in the pipeline, each is gone when it is added
    added = table.pipelined
    if added.any():
        one = widest_matrix_bytes(model, on.tp) * (element / 2)
        layer_gradient = np.where(added, np.minimum(layer_gradient, one), layer_gradient)
    head_matrix = model.head_matmul_params / np.where(sharded, on.tp, 1.0)
    head_input = element if training.lora is None else 0  # a frozen matrix keeps no input
    yes, no = np.ones(len(table), np.bool_), np.zeros(len(table), np.bool_)
    return PlanWork(
        per_layer=tuple(layer_bytes(model, layer, training, on) for layer in model.kinds),
        dense=dense,
        expert=tuple(layer.expert_params / (on.tp * on.ep) for layer in model.kinds),
        adapter=adapter,
        embedding=embedding_params(model, on.tp, sharded),
        head=head_params(model, on.tp, sharded, yes),
        last_head=head_params(model, on.tp, sharded, no),
        checkpoint=np.where(table.cpu_checkpointing, 0.0, checkpoint),
        host_checkpoint=np.where(table.cpu_checkpointing, checkpoint, 0.0),
        head_input=on.tokens * on.replicated * model.hidden * (on.norm_bytes + head_input),
        stage_output=np.where(table.pipelined, on.tokens * on.element * model.hidden / on.tp, 0.0),
        matrix=largest_matrix(model, training, on.tp, sharded, stacks_experts(coefficients, table)),
        logits=logits,
        expert_gradient=experts,
        slices=stacks_experts(coefficients, table),
        stays=stays(coefficients, model, training, table),
        vocabulary_ranks=np.where(sharded, on.tp, 1.0),
        gathers=np.where(
            table.sequence_parallel & (table.tp > 1),
            by_software(coefficients, software, "gathered_blocks")
            * (on.tokens * on.element * model.hidden),
            0.0,
        ),
        layer_gradient=layer_gradient,
        cached_gradient=layer_gradient * caches,
        head_gradient=element * head_matrix * caches,
        workspace=by_software(coefficients, software, "workspace_mib") * 2**20,
        quantized_head=by_software(coefficients, software, "quantizes_head") > 0,
    )


def stage_work(
    model: ModelSpec, training: TrainingSpec, table: PlanTable, work: PlanWork, stages: Stages
) -> StageWork:
    """The work of one stage of every plan of a (small) table."""
    head = np.where(stages.has_embedding, work.head, work.last_head)
    held = stage_weights(model, stages, work.dense, work.expert, work.embedding, head)
    zero = np.zeros(len(table))
    dense, expert, frozen = held.dense, held.expert, zero
    if training.lora is not None:
        ends = np.where(stages.has_embedding, work.embedding, 0.0)
        ends = ends + np.where(stages.has_head & ~work.quantized_head, head, 0.0)
        frozen = ends + (held.all - ends) * frozen_weight_bytes(training) / element_bytes(training)
        dense, expert = zero, zero
        for layers, adapter in zip(stages.layers, work.adapter, strict=True):
            dense = dense + layers * adapter

    share, partly = _recomputed(table, stages)
    acts, whole, transient, scores = _activations(work, stages, share, partly)
    between = work.workspace + work.cached_gradient
    at_end = work.workspace + transient + whole + work.expert_gradient
    last = stages.has_head
    in_flight = layers_in_flight(table, stages.index)
    passing = transient + work.expert_gradient
    passed = np.where(last, np.where(stages.has_embedding, 0.0, RECEIVED), in_flight)
    of_layers = acts * in_flight + work.stage_output * passed
    return StageWork(
        dense=dense,
        expert=expert,
        frozen=frozen,
        params=held.all,
        largest=held.largest,
        layer=held.layer,
        matrix=work.matrix,
        sliced=work.slices * np.maximum(1 - share - partly, 0.0) * held.expert,
        wide=_wide(model, training, work, stages),
        replicated=_replicated(model, table, work, stages),
        activations=of_layers + np.where(last, work.head_input, 0.0),
        of_layers=of_layers,
        logits_peak=np.where(last, work.logits.peak, 0.0),
        logits_kept=np.where(last, work.logits.kept, 0.0),
        logits_cached=np.where(last, work.logits.cached, 0.0),
        gathers_cached=work.gathers * ((1 - share) * sum(stages.layers, np.zeros(1)) * in_flight),
        at_loss=between + np.where(last, work.head_gradient, 0.0),
        in_layer=at_end + scores + work.layer_gradient,
        at_end=np.maximum(at_end, between),
        oversized=element_bytes(training)
        * oversized_elements(model, table, stages, work.vocabulary_ranks, work.slices, work.stays),
        unsent=np.maximum(
            acts * np.maximum(1 - FILLED / np.maximum(held.all, 1), 0) - passing, 0.0
        ),
        unreduced=acts
        * np.maximum(1 - (FILLED / 2 + held.layer) / np.maximum(dense + expert, 1), 0),
        between=between,
        on_host=work.host_checkpoint * share * sum(stages.layers, np.zeros(1)) * in_flight,
    )


def _wide(model: ModelSpec, training: TrainingSpec, work: PlanWork, stages: Stages) -> Floats:
    """8-bit optimizers keep the states of token tables in 32 bits (bitsandbytes' StableEmbedding
    and what Hugging Face and Megatron-DeepSpeed override), a tied copy's as well."""
    if training.optimizer not in EIGHT_BIT or training.lora is not None:
        return np.zeros(len(work.embedding))
    tables = np.where(stages.has_embedding, work.embedding, 0.0)
    if model.tied_embeddings:
        copied = stages.has_head & ~stages.has_embedding
        tables = tables + np.where(copied, work.embedding, 0.0)
    return tables * (OPTIMIZER_BYTES["adamw"] / OPTIMIZER_BYTES["adam8bit"] - 1)


def _replicated(model: ModelSpec, table: PlanTable, work: PlanWork, stages: Stages) -> Floats:
    """Parameters of this rank that the others of its TP group hold too, less one share of them."""
    if int(table.tp.max()) == 1:
        return np.zeros(len(table))
    whole = np.where(stages.has_embedding, work.embedding, 0.0)
    whole = whole + np.where(stages.has_head, work.head, 0.0)
    for layers, layer in zip(stages.layers, model.kinds, strict=True):
        whole = whole + layers * layer.replicated_params
    return whole * (1 - 1 / table.tp)


def _recomputed(table: PlanTable, stages: Stages) -> tuple[Floats, Floats]:
    """Share of the stage's layers that are recomputed whole, and share that are so in part."""
    held = np.maximum(sum(stages.layers, np.zeros(1)), 1.0)
    wanted = np.where(table.recompute_layers < 0, held, table.recompute_layers)
    share = np.minimum(wanted, held) / held
    whole = np.where(table.recompute == int(Recompute.FULL), share, 0.0)
    return whole, np.where(table.recompute == int(Recompute.MLP), share, 0.0)


def _activations(
    work: PlanWork, stages: Stages, share: Floats, partly: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Kept of one micro-batch; what the largest layer recomputes; its transients; its scores."""
    acts, whole, transient, scores = np.zeros((4, len(share)))
    for layers, layer in zip(stages.layers, work.per_layer, strict=True):
        saved = share * (layer.kept - work.checkpoint) + partly * layer.feed_forward
        acts = acts + layers * (layer.kept - saved)
        again = np.where(share > 0, layer.whole, np.where(partly > 0, layer.feed_forward, 0.0))
        whole = np.maximum(whole, again)
        transient = np.maximum(transient, layer.transient)
        scores = np.maximum(scores, layer.scores)
    return acts, whole, transient, scores
