"""Rules of divisibility: degrees against the world, the batch and the model's sizes."""

import numpy as np

from cost_model.plans import Plan, Recompute
from planner.rules.columns import (
    DEEPSPEED_ENGINE,
    MEGATRON_LAYERS,
    common_divisors,
    divides,
    is_software,
    largest_stage,
    not_dividing,
    spoken,
)
from planner.rules.placement import ends_fit
from planner.rules.rule import Rule, World

DEGREES = ("tp", "pp", "dp", "sp", "cp")


def _split(what: str, sizes: tuple[int, ...], degree: str, parts: int) -> str:
    bad = spoken(not_dividing(parts, sizes))
    return f"{bad} {what} cannot be split over {degree}={parts}; use {degree} of " + spoken(
        common_divisors(sizes)
    )


def _layers_message(world: World, plan: Plan) -> str:
    layers = world.model.layers
    parts = plan.pp * plan.vpp
    if layers < parts:
        return f"{layers} layers cannot fill {parts} stages; use at most {layers}"
    return (
        f"{layers} layers do not divide into pp={plan.pp} x vpp={plan.vpp} equal chunks; use a "
        f"product of {spoken(common_divisors([layers]))}, or set the layers of the first and last "
        "stage"
    )


def _batch_message(world: World, plan: Plan) -> str:
    wanted = world.training.global_batch
    unit = plan.micro_batch * plan.dp
    near = sorted({max(unit, wanted // unit * unit), (wanted // unit + 1) * unit})
    return (
        f"micro_batch {plan.micro_batch} x grad_accum {plan.grad_accum} x dp {plan.dp} is "
        f"{plan.global_batch}, not the global batch of {wanted}; with this micro batch and dp the "
        f"global batch must be a multiple of {unit}, such as {spoken(near)}"
    )


def _uneven_given(world: World, plan: Plan) -> str:
    return (
        f"first stage {plan.first_stage_layers} and last stage {plan.last_stage_layers} of "
        f"{world.model.layers} layers leave no equal share for the {plan.pp} stages"
    )


RULES = (
    Rule(
        "world-size",
        "refused",
        "The degrees multiply to the GPUs of the nodes used: no GPU of a used node idles.",
        (*DEGREES, "nodes"),
        lambda w, t: t.world_size == t.nodes * w.cluster.node.gpus_per_node,
        lambda w, p: (
            f"tp {p.tp} x pp {p.pp} x dp {p.dp} x sp {p.sp} x cp {p.cp} is {p.world_size} ranks, "
            f"and {p.nodes} nodes have {p.nodes * w.cluster.node.gpus_per_node} GPUs"
        ),
        "utils/groups.py:171, runtime/pipe/module.py:176",
    ),
    Rule(
        "nodes-available",
        "planner",
        "No more nodes are used than the cluster has.",
        ("nodes",),
        lambda w, t: t.nodes <= w.cluster.nodes,
        lambda w, p: f"{p.nodes} nodes are needed, and the cluster has {w.cluster.nodes}",
        "the cluster",
    ),
    Rule(
        "batch-triple",
        "refused",
        "micro_batch x grad_accum x dp equals the global batch.",
        ("micro_batch", "grad_accum", "dp"),
        lambda w, t: t.micro_batch * t.grad_accum * t.dp == w.training.global_batch,
        _batch_message,
        "runtime/config.py:602",
    ),
    Rule(
        "heads-tp",
        "refused",
        "TP divides the attention heads (AutoTP would shard unevenly, which is not modelled).",
        ("tp",),
        lambda w, t: divides(t.tp, w.heads),
        lambda w, p: _split("attention heads", w.heads, "tp", p.tp),
        "Megatron megatron/core/utils.py divide(); AutoTP: module_inject/tp_shard.py:91",
    ),
    Rule(
        "kv-heads-tp",
        "refused",
        "TP divides the key-value heads; Megatron also takes a TP that is a multiple of them, "
        "each rank then holding a copy of one.",
        ("software", "tp"),
        lambda w, t: (
            divides(t.tp, w.kv_heads)
            | (
                is_software(t, *MEGATRON_LAYERS)
                & np.logical_and.reduce([t.tp % kv == 0 for kv in w.kv_heads] or [True])
            )
        ),
        lambda w, p: _split("key-value heads", w.kv_heads, "tp", p.tp),
        "Megatron megatron/core/transformer/attention.py; AutoTP: module_inject/tp_shard.py:91",
    ),
    Rule(
        "ffn-tp",
        "refused",
        "TP divides the feed-forward width.",
        ("tp",),
        lambda w, t: divides(t.tp, w.ffn_widths),
        lambda w, p: _split("feed-forward columns", w.ffn_widths, "tp", p.tp),
        "Megatron megatron/core/utils.py divide(); AutoTP: module_inject/tp_shard.py:91",
    ),
    Rule(
        "vocab-tp",
        "planner",
        "TP divides the vocabulary where the software does not pad it (Megatron pads).",
        ("software", "tp"),
        lambda w, t: is_software(t, *MEGATRON_LAYERS) | divides(t.tp, [w.model.vocab]),
        lambda w, p: _split("vocabulary rows", (w.model.vocab,), "tp", p.tp),
        "uneven vocabulary shards are not modelled; pad the vocabulary",
    ),
    Rule(
        "heads-sp",
        "refused",
        "Ulysses SP divides the attention heads.",
        ("sp",),
        lambda w, t: divides(t.sp, w.heads),
        lambda w, p: _split("attention heads", w.heads, "sp", p.sp),
        "runtime/sequence_parallel/ulysses_sp.py:148",
    ),
    Rule(
        "kv-heads-sp",
        "refused",
        "Ulysses SP divides the key-value heads, or is a multiple of them.",
        ("sp",),
        lambda w, t: np.logical_and.reduce(
            [(kv % t.sp == 0) | (t.sp % kv == 0) for kv in w.kv_heads] or [t.sp > 0]
        ),
        lambda w, p: (
            f"{spoken(w.kv_heads)} key-value heads and sp={p.sp}: neither divides the other; "
            f"use sp of {spoken(common_divisors(w.kv_heads))}"
        ),
        "runtime/sequence_parallel/ulysses_sp.py:150",
    ),
    Rule(
        "sequence-sp",
        "refused",
        "Ulysses SP divides the sequence.",
        ("sp",),
        lambda w, t: w.training.seq_len % t.sp == 0,
        lambda w, p: f"{w.training.seq_len} tokens do not divide over sp={p.sp}; pad the sequence",
        "runtime/sequence_parallel/ulysses_sp.py:707",
    ),
    Rule(
        "sequence-cp",
        "refused",
        "Twice the CP degree divides the sequence: each rank takes a chunk from both ends.",
        ("cp",),
        lambda w, t: (t.cp == 1) | (w.training.seq_len % (2 * t.cp) == 0),
        lambda w, p: (
            f"{w.training.seq_len} tokens do not divide into {2 * p.cp} chunks for cp={p.cp}"
        ),
        "Megatron megatron/training/arguments.py (seq_length % (2 x cp))",
    ),
    Rule(
        "sequence-tp",
        "refused",
        "With sequence_parallel, TP divides the sequence.",
        ("tp", "sequence_parallel"),
        lambda w, t: ~t.sequence_parallel | (w.training.seq_len % t.tp == 0),
        lambda w, p: f"{w.training.seq_len} tokens do not divide over tp={p.tp}",
        "Megatron megatron/core/tensor_parallel/mappings.py",
    ),
    Rule(
        "layers-pp",
        "refused",
        "Every stage has a layer; with Megatron's own schedule, pp x vpp divides the layers unless "
        "the first and last stage are given.",
        ("software", "pp", "vpp", "first_stage_layers", "last_stage_layers", "placement"),
        lambda w, t: (
            (w.model.layers >= t.pp * t.vpp)
            & (
                (is_software(t, *DEEPSPEED_ENGINE) & (t.vpp == 1))
                | (t.first_stage_layers + t.last_stage_layers + t.placement > 0)
                | (w.model.layers % (t.pp * t.vpp) == 0)
            )
        ),
        _layers_message,
        "Megatron megatron/training/arguments.py; DeepSpeed builds empty stages without a word",
    ),
    Rule(
        "stage-layers-pp",
        "refused",
        "Given layers of the first and last stage leave the others an equal share; with a "
        "placement, one layer each within their group of nodes.",
        ("software", "pp", "vpp", "first_stage_layers", "last_stage_layers", "placement"),
        lambda w, t: (
            (t.first_stage_layers + t.last_stage_layers == 0)
            | ((t.placement > 0) & ends_fit(w, t))
            | (
                (t.pp > 1)
                & (t.placement == 0)
                & (
                    w.model.layers - t.first_stage_layers - t.last_stage_layers
                    >= (t.pp - (t.first_stage_layers > 0) - (t.last_stage_layers > 0))
                )
                & (
                    (w.model.layers - t.first_stage_layers - t.last_stage_layers)
                    % np.maximum(
                        1,
                        (t.pp - (t.first_stage_layers > 0) - (t.last_stage_layers > 0)) * t.vpp,
                    )
                    == 0
                )
            )
        ),
        _uneven_given,
        "Megatron --decoder-first-pipeline-num-layers; DeepSpeed: a partition_method by layer",
    ),
    Rule(
        "recompute-layers",
        "planner",
        "The number of recomputed layers is below the layers of a stage, and given only with full "
        "recompute or that of the feed-forward.",
        ("pp", "placement", "recompute", "recompute_layers"),
        lambda w, t: (
            (t.recompute_layers == -1)
            | (
                ((t.recompute == int(Recompute.FULL)) | (t.recompute == int(Recompute.MLP)))
                & (t.recompute_layers > 0)
                & (t.recompute_layers < largest_stage(t, w.model.layers))
            )
        ),
        lambda w, p: (
            f"recompute_layers {p.recompute_layers} of {-(-w.model.layers // p.pp)} layers a stage "
            f"with recompute {p.recompute.name.lower()}; use -1 for all"
        ),
        "duplicates of none and of all",
    ),
    Rule(
        "experts-ep",
        "refused",
        "EP divides the experts, and a model without experts has none.",
        ("ep",),
        lambda w, t: (t.ep == 1) | (divides(t.ep, w.experts) & bool(w.experts)),
        lambda w, p: (
            _split("experts", w.experts, "ep", p.ep)
            if w.experts
            else f"ep={p.ep}, and {w.model.name} has no experts; use ep=1"
        ),
        "moe/layer.py:59",
    ),
    Rule(
        "ep-dp",
        "refused",
        "EP divides DP: experts are laid over the data-parallel ranks.",
        ("ep", "dp"),
        lambda w, t: t.dp % t.ep == 0,
        lambda w, p: f"ep={p.ep} does not divide dp={p.dp}",
        "utils/groups.py:71",
    ),
    Rule(
        "interleave-micro-batches",
        "refused",
        "The interleaved schedule takes micro-batches in multiples of PP.",
        ("vpp", "pp", "grad_accum"),
        lambda w, t: (t.vpp == 1) | ((t.pp > 1) & (t.grad_accum % t.pp == 0)),
        lambda w, p: (
            f"vpp={p.vpp} with {p.grad_accum} micro-batches and pp={p.pp}: the interleaved "
            "schedule needs pp > 1 and micro-batches in multiples of pp"
        ),
        "Megatron megatron/core/pipeline_parallel/schedules.py",
    ),
)
