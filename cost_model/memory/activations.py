"""Bytes of activations that one layer keeps for its backward pass.

Korthikanti et al. 2022 (arXiv 2205.05198, section 4.1) count s b h (34 + 5 a s / h) bytes for a
GPT layer in 16 bits; with tensor parallelism t, s b h (10 + 24 / t + 5 a s / (h t)); with sequence
parallelism all of it over t. Here each tensor of that count is a term of its own, so that the same
sum holds for gated MLPs, grouped queries, latent attention, experts, parallel residuals, and
kernels that do not keep the scores.
"""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.adapters import adapter_inputs
from cost_model.memory.parameters import stacks_experts
from cost_model.memory.precision import element_bytes
from cost_model.memory.profile import by_software
from cost_model.plans import Bools, Floats, Ints, PlanTable
from cost_model.specs import Attention, Layer, ModelSpec, Moe, TrainingSpec


@dataclass(frozen=True)
class Shards:
    """What of the work one rank does, and how its software keeps it [rows]."""

    tokens: Floats
    """Tokens of one micro-batch on this rank: micro_batch x seq_len / (sp x cp)."""
    element: Floats
    """Bytes of an activation."""
    tp: Floats
    replicated: Floats
    """1 / tp where norms and residuals are sharded by sequence, else 1."""
    inputs: Floats
    """The same for the inputs of matrix products; 0 where they are computed again."""
    copies: Bools
    """Whether tensor-parallel matrices that share an input keep a copy each."""
    ep: Floats
    capacity: Floats
    """Tokens each expert takes over its fair share; at least 1."""
    norm_bytes: Floats
    gated_saved: Floats
    """Tensors of the intermediate width that a gated MLP saves."""
    plain_saved: Floats
    """The same without a gate."""
    repeats_kv: Bools
    stale: Floats
    """Parts of the fused query-key-value product whose storage is kept for nothing."""
    score_bytes: Floats
    """Saved per attention score, without dropout; 0 for flash kernels."""
    gathers: Floats
    """Shards of keys and values that all-gather context parallelism brings together; else 0."""
    selective: Bools
    loops: Bools
    """Whether experts are applied one after the other (transformers)."""


@dataclass(frozen=True)
class LayerBytes:
    """One kind of layer, one micro-batch [rows]."""

    kept: Floats
    """Kept where the layer is not recomputed (without scores under selective recompute)."""
    whole: Floats
    """All that exists when the layer's backward pass begins: kept, and recomputed scores."""
    transient: Floats
    """Gradients of activations alive at once in its backward pass."""
    scores: Floats
    """Added to them where selective recompute brings one layer's scores back."""
    feed_forward: Floats
    """Part of kept that goes where the feed-forward alone is recomputed: all but its input."""


COMPOSED_GELU = 3
"""More tensors that GPT-2's tanh-approximated GELU saves where it is written out in Python."""


def shards(
    coefficients: MemoryCoefficients, model: ModelSpec, training: TrainingSpec, table: PlanTable
) -> Shards:
    """The shards of every plan of a table."""
    software, tp = table.software, table.tp.astype(np.float64)
    element = element_bytes(training)
    norm = by_software(coefficients, software, "norm_saved_bytes")
    # torch's layer norm is one kernel everywhere and saves its input; RMS norms are often not
    if training.fused_norm or training.precision == "fp32" or model.norm == "layernorm":
        norm = np.full(len(table), float(element))
    if model.norm == "layernorm" and training.fused_norm:
        finds = by_software(coefficients, software, "norm_finds_input") > 0
        norm = np.where(finds, 0.0, norm)
    if training.lora is not None:  # its fp32 input; a frozen weight's gradient needs no normed one
        norm = np.minimum(norm, 4.0)
    compiled = table.compile
    gated = by_software(coefficients, software, "gated_saved")
    composed = model.activation == "gelu_new"
    plain = 1.0 if model.activation == "relu" else 2.0  # it needs its result alone, kept anyway
    sequence = table.sp * table.cp
    replicated = np.where(table.sequence_parallel, 1 / tp, 1.0)
    regathers = by_software(coefficients, software, "regathers_inputs") > 0
    normed = by_software(coefficients, software, "keeps_normed")
    return Shards(
        tokens=table.micro_batch * (training.seq_len / sequence),
        element=activation_bytes(coefficients, training, software),
        tp=tp,
        replicated=replicated,
        inputs=np.where(regathers, replicated, 1.0) * normed,
        copies=(by_software(coefficients, software, "copies_inputs") > 0) & (tp > 1),
        ep=table.ep.astype(np.float64),
        capacity=np.maximum(table.capacity_factor, 1.0),
        norm_bytes=np.where(compiled, element, norm),
        gated_saved=np.where(compiled, 3.0, gated),
        plain_saved=np.where(composed & ~compiled & (gated > 3), 2.0 + COMPOSED_GELU, plain),
        repeats_kv=_repeats_kv(coefficients, training, software),
        stale=by_software(coefficients, software, "stale_projections"),
        score_bytes=_score_bytes(coefficients, training, software),
        gathers=np.where(table.cp_all_gather, table.cp, 0).astype(np.float64),
        selective=table.recompute == 1,
        loops=stacks_experts(coefficients, table),
    )


def activation_bytes(
    coefficients: MemoryCoefficients, training: TrainingSpec, software: Ints
) -> Floats:
    """Bytes of an element between the products [rows]: of the training precision, mostly."""
    narrow = np.full(len(software), float(element_bytes(training)))
    if training.lora is None or not training.lora.quantized_base:
        return narrow
    widens = by_software(coefficients, software, "widens_quantized") > 0
    return np.where(widens, 4.0, narrow)


def layer_bytes(model: ModelSpec, layer: Layer, training: TrainingSpec, on: Shards) -> LayerBytes:
    """Activation bytes of one layer for one micro-batch on one rank."""
    element = on.element
    hidden, dropout = model.hidden, _has_dropout(model, training)
    replicated = layer.norms * on.norm_bytes * hidden
    sharded = np.zeros_like(on.tokens)
    scores = np.zeros_like(on.tokens)
    widest = np.zeros_like(on.tokens)
    inputs_kept = 0
    parts = (layer.attention, layer.cross_attention, layer.mlp, layer.moe)
    masks = 1 if layer.parallel_residual else sum(part is not None for part in parts)
    for attention in (layer.attention, layer.cross_attention):
        if attention is None:
            continue
        inputs_kept += 1
        sharded = sharded + _attention(attention, training, on)
        replicated = replicated + _latents(attention, element)
        if attention.qk_norm:
            normed = (attention.heads + attention.kv_heads) * attention.head_dim
            sharded = sharded + on.norm_bytes * normed / on.tp
        if training.attention in ("eager", "fused_softmax"):
            scores = scores + _scores(attention, training, dropout, on)
            widest = np.maximum(widest, _score_transient(attention, training, on))
        sizes = attention.head_dim + attention.value_head_dim
        # whole keys and values, and their gradients, where they are gathered
        width = 2 * sizes * (attention.heads + on.gathers * attention.kv_heads)
        widest = np.maximum(widest, element * width / on.tp)
    before, in_attention, widest = sharded, widest, np.zeros_like(on.tokens)
    # a frozen matrix needs no input for its gradient, unless an adapter reads it too
    frozen = training.lora is not None and training.lora.targets == "attention"
    if layer.mlp is not None:
        inputs_kept += 0 if frozen else 1
        tensors = (on.gated_saved if layer.mlp.gated else on.plain_saved) - (1 if frozen else 0)
        sharded = sharded + element * layer.mlp.intermediate * tensors / on.tp
        grads = 3.0 if layer.mlp.gated else 2.0
        widest = np.maximum(widest, element * layer.mlp.intermediate * grads / on.tp)
    if layer.moe is not None:
        inputs_kept += 1
        expert, expert_grads = _experts(layer.moe, hidden, element, on)
        sharded = sharded + expert
        widest = np.maximum(widest, expert_grads)
    feed_forward = sharded - before
    if not layer.parallel_residual:  # the backward pass is through the feed-forward by then
        in_attention = in_attention - feed_forward
    again = np.maximum(widest, in_attention + np.where(on.selective, scores, 0.0))
    inputs = element * hidden * _inputs_kept(layer, inputs_kept, on) * on.inputs
    if dropout:
        replicated = replicated + hidden * masks
    if training.lora is not None and training.lora.dropout:
        sharded = sharded + (1 + element) * adapter_inputs(layer, hidden, training) / on.tp
    kept = on.tokens * (replicated * on.replicated + inputs + sharded)
    scores = on.tokens * scores
    return LayerBytes(
        kept=kept + np.where(on.selective, 0.0, scores),
        whole=kept + scores,
        transient=on.tokens * (np.maximum(widest, in_attention) + 2 * element * hidden),
        scores=on.tokens * (again - np.maximum(widest, in_attention)),
        feed_forward=on.tokens * feed_forward,
    )


def _inputs_kept(layer: Layer, sublayers: int, on: Shards) -> Floats:
    """Inputs of matrix products that a layer keeps, of those of its sub-layers.

    Where matrices copy them, keys, values and the other half of a gate add three.
    """
    shared = layer.parallel_residual and layer.norms < 2  # two norms make two inputs
    gated = layer.mlp is not None and layer.mlp.gated
    return np.where(on.copies & gated, 3.0, 0.0) + (min(sublayers, 1) if shared else sublayers)


def _repeats_kv(coefficients: MemoryCoefficients, training: TrainingSpec, software: Ints) -> Bools:
    """Whether keys and values are expanded to all query heads: flash kernels need none of it, and
    transformers hands theirs over as they are (modeling_flash_attention_utils.py)."""
    repeats = by_software(coefficients, software, "repeats_kv") > 0
    if training.attention in ("flash1", "flash2"):
        repeats &= by_software(coefficients, software, "zero_engine") == 0
    return repeats


def layer_input_bytes(model: ModelSpec, training: TrainingSpec, on: Shards) -> Floats:
    """The one tensor that full recompute keeps of a layer: 2 s b h in 16 bits."""
    return on.tokens * on.element * model.hidden * on.replicated


def _has_dropout(model: ModelSpec, training: TrainingSpec) -> bool:
    return training.dropout > 0


def _attention(attention: Attention, training: TrainingSpec, on: Shards) -> Floats:
    """Query, key, value and output per token; and the softmax statistics of flash kernels."""
    element = on.element
    kv_local = np.maximum(attention.kv_heads / on.tp, 1.0) * on.tp
    kv = np.where(on.repeats_kv, attention.heads, np.minimum(kv_local, attention.heads))
    width = attention.heads * (attention.head_dim + attention.value_head_dim) + kv * (
        attention.head_dim + attention.value_head_dim
    )
    width = width + on.stale * kv_local * attention.head_dim
    statistics = 0 if training.attention in ("eager", "fused_softmax") else 4 * attention.heads
    saved: Floats = (element * width + statistics) / on.tp
    return saved


def _latents(attention: Attention, element: Floats) -> Floats:
    """Latent attention keeps each low-rank projection before and after its norm."""
    if attention.latent is None:
        return np.zeros_like(element)
    latent = attention.latent
    return 2.0 * element * ((latent.q_lora_rank or 0) + latent.kv_lora_rank + latent.rope_head_dim)


def _score_bytes(
    coefficients: MemoryCoefficients, training: TrainingSpec, software: Ints
) -> Floats:
    """Bytes saved per attention score, without dropout; flash kernels save none."""
    if training.attention == "eager":
        saved = by_software(coefficients, software, "eager_score_bytes")
    elif training.attention == "fused_softmax":
        saved = by_software(coefficients, software, "fused_score_bytes")
    else:
        return np.zeros(len(software))
    return np.full(len(software), 4.0) if training.precision == "fp32" else saved


def _scores(attention: Attention, training: TrainingSpec, dropout: bool, on: Shards) -> Floats:
    """Softmax output, dropout mask and dropped output: 5 a s bytes per token in 16 bits."""
    per_score = on.score_bytes + (1 + on.element if dropout else 0)
    return per_score * attention.heads * training.seq_len / on.tp


def _score_transient(attention: Attention, training: TrainingSpec, on: Shards) -> Floats:
    """Gradient of the softmax's result and, where it is not written over, of its input."""
    width = on.score_bytes + (0 if training.attention == "fused_softmax" else on.element)
    return width * attention.heads * training.seq_len / on.tp


def _experts(moe: Moe, hidden: int, element: Floats, on: Shards) -> tuple[Floats, Floats]:
    """Kept bytes and gradient transients per token of a mixture of experts.

    Each of the top_k copies of a token keeps its dispatched input, the expert's intermediates and
    its output (for the gradient of the router's weight); the router keeps fp32 probabilities. One
    after the other, one expert's gradients are there at a time, and where those of their weights
    are added up (stacked_expert_gradients) two experts are through.
    """
    copies = moe.top_k * on.capacity
    tensors = on.gated_saved if moe.gated else on.plain_saved
    routed = copies * element * (2 * hidden + tensors * moe.intermediate / on.tp)
    shared = element * moe.shared_intermediate * tensors / on.tp
    router = 8.0 * moe.experts
    grads = copies * element * (2 * hidden + (3.0 if moe.gated else 2.0) * moe.intermediate / on.tp)
    grads = np.where(on.loops, (grads - 2 * routed) / moe.experts, grads)
    return routed + shared + router, grads
