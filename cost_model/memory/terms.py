"""Everything about a table of plans that does not depend on the pipeline stage."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.activations import layer_bytes, layer_input_bytes, shards
from cost_model.memory.adapters import adapter_params, frozen_weight_bytes
from cost_model.memory.buffers import backward_buckets, has_buckets, permanent_buckets
from cost_model.memory.framework import framework_bytes
from cost_model.memory.groups import Groups, group
from cost_model.memory.logits import logit_bytes
from cost_model.memory.parameters import dense_per_layer, embedding_params, head_params
from cost_model.memory.precision import element_bytes
from cost_model.memory.profile import by_software
from cost_model.memory.states import Rates, state_rates
from cost_model.plans import Bools, Floats, PlanTable, Recompute, Software
from cost_model.specs import ModelSpec, TrainingSpec


@dataclass(frozen=True)
class LayerTerms:
    """One kind of layer [plans]."""

    dense: Floats
    expert: Floats
    adapter: Floats
    kept: Floats
    whole: Floats
    transient: Floats


@dataclass(frozen=True)
class Terms:
    """Per plan, whatever the stage [plans]."""

    layers: tuple[LayerTerms, ...]
    embedding: Floats
    head: Floats
    tied_copy: Floats
    """Parameters of the tied matrix that a last stage holds again."""
    layer_input: Floats
    head_input: Floats
    """Final norm and the head's input."""
    logits_kept: Floats
    logits_peak: Floats
    layer_gradient: Floats
    """Weight gradients of one layer in the training precision, before they are accumulated."""
    head_gradient: Floats
    cached_gradient: Floats
    """The part of layer_gradient that is never freed."""
    dense: Rates
    expert: Rates
    frozen_bytes: float
    """Bytes of a frozen base weight; 0 where the whole model is trained."""
    backward_buckets: Floats
    permanent_buckets: Floats
    workspace: Floats
    fragmentation: Floats
    framework: Floats
    fsdp: Bools
    full: Bools
    """Layers are recomputed whole."""


def terms(
    coefficients: MemoryCoefficients, model: ModelSpec, training: TrainingSpec, table: PlanTable
) -> Terms:
    """Computes the terms once per distinct combination of the columns they depend on."""
    work = group(
        table.software,
        table.tp,
        table.sequence_parallel,
        table.sp,
        table.cp,
        table.ep,
        table.micro_batch,
        table.recompute,
        table.partition_activations,
        table.cpu_checkpointing,
        table.chunked_loss,
        table.compile,
        table.capacity_factor,
    )
    rows = work.first
    on = shards(coefficients, training, table, rows)
    sharded = by_software(coefficients, table.software[rows], lambda p: p.tp_shards_vocabulary) > 0
    kinds = []
    for layer in model.kinds:
        act = layer_bytes(model, layer, training, on)
        kinds.append(
            LayerTerms(
                dense=work.spread(dense_per_layer(layer, on.tp)),
                expert=work.spread(layer.expert_params / (on.tp * on.ep)),
                adapter=work.spread(adapter_params(model, layer, training, on.tp)),
                kept=work.spread(act.kept),
                whole=work.spread(act.whole),
                transient=work.spread(act.transient),
            )
        )
    element = element_bytes(training)
    layer_input = layer_input_bytes(model, training, on)
    checkpoint = np.where(table.partition_activations[rows], layer_input / on.tp, layer_input)
    checkpoint = np.where(table.cpu_checkpointing[rows], 0.0, checkpoint)
    parallel_loss = (
        by_software(coefficients, table.software[rows], lambda p: p.vocabulary_parallel_loss) > 0
    )
    kept, peak = logit_bytes(model, training, coefficients, table, rows, on, parallel_loss)
    weight_gradient = dense_per_layer(model.kinds[0], on.tp)
    for layer in model.kinds[1:]:
        weight_gradient = np.maximum(weight_gradient, dense_per_layer(layer, on.tp))
    cached = by_software(coefficients, table.software[rows], lambda p: p.caches_weight_gradients)
    head_gradient = model.head_matmul_params / np.where(sharded, on.tp, 1.0)
    first = np.zeros(len(rows), np.bool_)
    head = head_params(model, on.tp, sharded, ~first)
    head_input = on.tokens * on.replicated * model.hidden * (on.norm_bytes + element)

    dense, expert = _rates(coefficients, training, table)
    buckets = has_buckets(coefficients, training, table)
    return Terms(
        layers=tuple(kinds),
        embedding=work.spread(embedding_params(model, on.tp, sharded)),
        head=work.spread(head),
        tied_copy=work.spread(head_params(model, on.tp, sharded, first) - head),
        layer_input=work.spread(checkpoint),
        head_input=work.spread(head_input),
        logits_kept=work.spread(kept),
        logits_peak=work.spread(peak),
        layer_gradient=work.spread(element * weight_gradient),
        head_gradient=work.spread(element * head_gradient * cached),
        cached_gradient=work.spread(element * weight_gradient * cached),
        dense=dense,
        expert=expert,
        frozen_bytes=frozen_weight_bytes(training),
        backward_buckets=backward_buckets(training, table, buckets),
        permanent_buckets=permanent_buckets(training, table, buckets),
        workspace=by_software(coefficients, table.software, lambda p: p.workspace_mib) * 2**20,
        fragmentation=by_software(coefficients, table.software, lambda p: p.fragmentation),
        framework=_framework(coefficients, table),
        fsdp=table.software == Software.FSDP,
        full=table.recompute == Recompute.FULL,
    )


def _spread_rates(rates: Rates, groups: Groups) -> Rates:
    return Rates(**{name: groups.spread(value) for name, value in vars(rates).items()})


def _rates(
    coefficients: MemoryCoefficients, training: TrainingSpec, table: PlanTable
) -> tuple[Rates, Rates]:
    """Bytes per dense and per expert parameter."""
    ranks = table.zero_group
    groups = group(
        table.software,
        table.zero_stage,
        ranks,
        table.ep,
        table.grad_accum > 1,
        table.offload_optimizer,
        table.offload_param,
        table.offload_ratio,
    )
    rows = groups.first
    over = ranks[rows].astype(np.float64)
    dense = state_rates(coefficients, training, table, rows, over)
    if int(table.ep.max()) == 1:
        spread = _spread_rates(dense, groups)
        return spread, spread
    experts = np.maximum(over / table.ep[rows], 1.0)
    expert = state_rates(coefficients, training, table, rows, experts)
    return _spread_rates(dense, groups), _spread_rates(expert, groups)


def _framework(coefficients: MemoryCoefficients, table: PlanTable) -> Floats:
    groups = group(table.tp, table.pp, table.dp, table.sp, table.cp, table.ep)
    return groups.spread(framework_bytes(coefficients, table.take(groups.first)))
