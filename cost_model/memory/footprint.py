"""What one stage of each plan holds at each moment of a step, by category."""

from dataclasses import dataclass

import numpy as np

from cost_model.memory.buffers import gathered_weights, secondary_shard
from cost_model.memory.layout import Stages, layers_in_flight
from cost_model.memory.parameters import stage_weights
from cost_model.memory.states import Rates
from cost_model.memory.terms import Terms
from cost_model.plans import Bools, Floats, PlanTable
from cost_model.specs import ModelSpec, TrainingSpec

MOMENTS = ("init", "loss", "layer", "backward_end", "step", "save")
"""When memory can peak: at start; at the loss; in the backward pass of the last layer, when all
activations are still there; at the end of the backward pass, when all gradients are; in the
optimizer's step; while a checkpoint is written."""

PHASE_OF_MOMENT = (0, 1, 1, 1, 2, 3)
"""Index into MEMORY_PHASES."""

Parts = dict[str, Floats]
"""Bytes by category; a category that is not there holds nothing."""


@dataclass(frozen=True)
class Footprint:
    """Bytes on one rank of a stage [plans]."""

    static: Parts
    """The same at every moment but init."""
    moments: tuple[Parts, ...]
    """What comes on top, by MOMENTS."""
    dynamic: tuple[Floats, ...]
    """The part of each moment that is allocated and freed within a step."""
    params: Floats
    """Parameters of the stage, sharded over TP and EP alone."""
    host: Floats
    nvme: Floats


def _per_param(terms: Terms, name: str, dense: Floats, expert: Floats | None) -> Floats:
    """Bytes of the dense and the expert parameters at their own rates."""
    value: Floats = getattr(terms.dense, name) * dense
    if expert is not None:
        value = value + getattr(terms.expert, name) * expert
    return value


def _recomputed(table: PlanTable, terms: Terms, stages: Stages) -> Floats:
    """Share of the stage's layers that are recomputed whole."""
    if not terms.full.any():
        return np.zeros(len(table))
    held = np.maximum(sum(stages.layers), 1.0)
    wanted = np.where(table.recompute_layers < 0, held, table.recompute_layers)
    return np.where(terms.full, np.minimum(wanted, held) / held, 0.0)


def _frozen(terms: Terms, rates: Rates, weights: Floats, embedding: Floats) -> Floats:
    """Bytes of a frozen base: matrices at their own width, embedding and head in 16 bits.

    ZeRO-3 shards a 16-bit base; a 4-bit base is no parameter that it can shard.
    """
    quantized = terms.frozen_bytes < 2
    if quantized:
        return terms.frozen_bytes * (weights - embedding) + 2.0 * embedding
    return rates.weights * weights


def footprint(
    model: ModelSpec, training: TrainingSpec, table: PlanTable, terms: Terms, stages: Stages
) -> Footprint:
    """The footprint of one stage of every plan."""
    held = stage_weights(
        model,
        stages,
        tuple(k.dense for k in terms.layers),
        tuple(k.expert for k in terms.layers),
        terms.embedding,
        terms.head + np.where(stages.has_embedding, 0.0, terms.tied_copy),
    )
    params = held.all
    if training.lora is None:
        dense, expert = held.dense, (held.expert if model.is_moe else None)
        weights = _per_param(terms, "weights", dense, expert)
        init = _per_param(terms, "init", dense, expert)
    else:
        dense, expert = np.zeros(len(table)), None
        for kind, layer in enumerate(terms.layers):
            dense = dense + stages.layers[kind] * layer.adapter
        ends = np.where(stages.has_embedding, terms.embedding, 0.0)
        ends = ends + np.where(stages.has_head, terms.head, 0.0)
        weights = _frozen(terms, terms.dense, params, ends)
        weights = weights + _per_param(terms, "weights", dense, None)
        init = weights

    share = _recomputed(table, terms, stages)
    acts, whole, transient = _activations(table, terms, stages, share)
    acts = acts + np.where(stages.has_head, terms.head_input, 0.0)
    cached = terms.workspace + terms.cached_gradient
    working = transient + terms.workspace + terms.layer_gradient + np.where(share > 0, whole, 0.0)
    loss_working = cached + np.where(stages.has_head, terms.head_gradient, 0.0)
    logits_kept = np.where(stages.has_head, terms.logits_kept, 0.0)
    gathered = gathered_weights(training, table, params, held.largest, terms.fsdp)
    held_gradients = _per_param(terms, "gradients", dense, expert)
    all_gradients = held_gradients + _per_param(terms, "gradients_growing", dense, expert)
    step_gradients = _per_param(terms, "gradients_at_step", dense, expert)
    step = _per_param(terms, "step", dense, expert)
    logits_peak = np.where(stages.has_head, terms.logits_peak, 0.0)

    static = {
        "parameters": weights + secondary_shard(training, table, params),
        "master": _per_param(terms, "master", dense, expert),
        "optimizer": _per_param(terms, "optimizer", dense, expert),
        "buckets": terms.permanent_buckets,
    }
    moments: tuple[Parts, ...] = (
        {"parameters": init},
        {
            "gradients": held_gradients,
            "gathered": gathered,
            "activations": acts,
            "logits": logits_peak,
            "working": loss_working,
        },
        {
            "gradients": held_gradients,
            "gathered": gathered,
            "activations": acts,
            "logits": logits_kept,
            "working": working,
            "buckets": terms.backward_buckets,
        },
        {
            "gradients": all_gradients,
            "gathered": gathered,
            "logits": logits_kept,
            "working": working,
            "buckets": terms.backward_buckets,
        },
        {"gradients": step_gradients, "step_transients": step, "working": cached},
        {"gradients": held_gradients, "working": cached},
    )
    zero = np.zeros(len(table))
    dynamic = (
        zero,
        gathered + acts + logits_peak,
        gathered + acts + working + logits_kept,
        gathered + working + logits_kept + (all_gradients - held_gradients),
        step,
        zero,
    )
    return Footprint(
        static=static,
        moments=moments,
        dynamic=dynamic,
        params=params,
        host=_per_param(terms, "host", dense, expert),
        nvme=_per_param(terms, "nvme", dense, expert),
    )


def _activations(
    table: PlanTable, terms: Terms, stages: Stages, share: Floats
) -> tuple[Floats, Floats, Floats]:
    """Kept in flight; the largest layer whole; the largest layer's transients."""
    acts = np.zeros(len(table))
    whole = np.zeros(len(table))
    transient = np.zeros(len(table))
    recomputes: Bools = share > 0
    for kind, layer in enumerate(terms.layers):
        kept = layer.kept
        if recomputes.any():
            kept = kept + share * (terms.layer_input - kept)
        acts = acts + stages.layers[kind] * kept
        whole = np.maximum(whole, layer.whole)
        transient = np.maximum(transient, layer.transient + (layer.whole - layer.kept))
    return acts * layers_in_flight(table, stages.index), whole, transient
