"""Arguments of Megatron-LM and Megatron-DeepSpeed for a plan."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from cost_model.plans import Offload, Plan, Recompute, Software
from cost_model.specs import Attention, Layer, ModelSpec, TrainingSpec
from planner.export.ds_config import LEARNING_RATE, ds_config
from planner.export.quoting import lines
from planner.export.result import Exported, NotExportable, Planned

Argument = tuple[object, ...]
"""A flag with its values."""


@dataclass(frozen=True)
class Geometry:
    """The numbers that Megatron takes, from a model of one kind of layer."""

    attention: Attention
    layer: Layer
    feed_forward: int
    gated: bool
    bias: bool


def geometry(model: ModelSpec) -> Geometry:
    """Raises NotExportable for models that Megatron's GPT cannot be told to be."""
    kinds = [model.kinds[i] for i in sorted(set(model.layer_pattern))]
    first = kinds[-1]
    if model.family != "decoder" or first.attention is None or model.encoder_layers:
        raise NotExportable(f"{model.name} is no decoder; Megatron arguments are for GPT models")
    if first.attention.latent is not None:
        raise NotExportable(f"{model.name} has latent attention; use Megatron-Bridge's own recipe")
    if first.moe is not None:
        return Geometry(first.attention, first, first.moe.intermediate, first.moe.gated, False)
    if first.mlp is None:
        raise NotExportable(f"{model.name} has layers without an MLP")
    mlp = first.mlp
    return Geometry(first.attention, first, mlp.intermediate, mlp.gated, mlp.bias)


def _model(model: ModelSpec, training: TrainingSpec, *, core: bool) -> Iterator[Argument]:
    shape = geometry(model)
    yield ("--num-layers", model.layers)
    yield ("--hidden-size", model.hidden)
    yield ("--ffn-hidden-size", shape.feed_forward)
    yield ("--num-attention-heads", shape.attention.heads)
    if shape.attention.kv_heads != shape.attention.heads:
        if core:
            yield ("--group-query-attention",)
            yield ("--num-query-groups", shape.attention.kv_heads)
        else:
            yield ("--num-key-value-heads", shape.attention.kv_heads)
    if shape.attention.head_dim * shape.attention.heads != model.hidden:
        yield ("--kv-channels", shape.attention.head_dim)
    yield ("--seq-length", training.seq_len)
    yield ("--max-position-embeddings", max(training.seq_len, model.max_seq_len or 0))
    if model.norm == "rmsnorm":
        yield ("--normalization", "RMSNorm" if core else "rmsnorm")
    if model.position == "rotary":
        yield (
            ("--position-embedding-type", "rope") if core else ("--use-rotary-position-embeddings",)
        )
    if shape.gated:
        yield ("--swiglu",)
    if not shape.bias:
        yield ("--disable-bias-linear",)
    if shape.attention.qkv_bias and core and not shape.bias:
        yield ("--add-qkv-bias",)
    if not model.tied_embeddings:
        yield ("--untie-embeddings-and-output-weights",)
    if model.dropout == 0:
        yield ("--attention-dropout", 0.0)
        yield ("--hidden-dropout", 0.0)
    yield ("--make-vocab-size-divisible-by", 128)


def _training(training: TrainingSpec, plan: Plan) -> Iterator[Argument]:
    yield ("--micro-batch-size", plan.micro_batch)
    yield ("--global-batch-size", plan.micro_batch * plan.grad_accum * plan.dp)
    yield ("--lr", LEARNING_RATE)
    yield ("--min-lr", LEARNING_RATE / 10)
    yield ("--lr-decay-style", "cosine")
    yield ("--weight-decay", 0.1)
    yield ("--clip-grad", 1.0)
    steps = 100
    if training.tokens is not None:
        steps = max(1, -(-training.tokens // training.tokens_per_step))
    yield ("--train-iters", steps)
    if training.precision != "fp32":
        yield (f"--{training.precision}",)


def megatron_lm_arguments(planned: Planned) -> list[Argument]:
    """Arguments of Megatron-LM's pretrain_gpt.py (megatron/training/arguments.py)."""
    planned.only("megatron_lm", Software.MEGATRON)
    model, training, plan = planned.model, planned.training, planned.plan
    out: list[Argument] = [("--use-mcore-models",)]
    out += _model(model, training, core=True)
    out.append(("--tensor-model-parallel-size", plan.tp))
    out.append(("--pipeline-model-parallel-size", plan.pp))
    if plan.sequence_parallel and plan.tp > 1:
        out.append(("--sequence-parallel",))
        if plan.tp_overlap:
            out.append(("--tp-comm-overlap",))
    if plan.cp > 1:
        out.append(("--context-parallel-size", plan.cp))
        out.append(("--cp-comm-type", "all_gather" if plan.cp_all_gather else "p2p"))
    out += _stages(planned)
    if plan.vpp > 1:
        per = model.layers // (plan.pp * plan.vpp)
        out.append(("--num-layers-per-virtual-pipeline-stage", per))
    out += _experts(model, plan)
    if plan.zero_stage >= 1:
        out.append(("--use-distributed-optimizer",))
        if plan.overlap_comm:
            out += [("--overlap-grad-reduce",), ("--overlap-param-gather",)]
    elif plan.overlap_comm:
        out.append(("--overlap-grad-reduce",))
    out += _recompute(model, plan)
    if plan.comm_16bit:
        out.append(("--grad-reduce-in-bf16",))
    elif training.precision == "bf16" and training.fp32_grad_accum is not False:
        out.append(("--accumulate-allreduce-grads-in-fp32",))
    if training.attention in ("flash1", "flash2"):
        out.append(("--attention-backend", "flash"))
    out += _training(training, plan)
    return out


def _stages(planned: Planned) -> Iterator[Argument]:
    """Stages of unequal layers. A layout has a t for each layer, E for the embedding and L for the
    loss (megatron/core/transformer/pipeline_parallel_layer_layout.py)."""
    plan = planned.plan
    if plan.placement:
        layout = "|".join("t" * layers for layers in planned.stage_layers)
        yield ("--pipeline-model-parallel-layout", f"E{layout}L")
        return
    if plan.first_stage_layers:
        yield ("--decoder-first-pipeline-num-layers", plan.first_stage_layers)
    if plan.last_stage_layers:
        yield ("--decoder-last-pipeline-num-layers", plan.last_stage_layers)


def _experts(model: ModelSpec, plan: Plan) -> Iterator[Argument]:
    moe = geometry(model).layer.moe
    if moe is None:
        return
    yield ("--num-experts", moe.experts)
    yield ("--moe-router-topk", moe.top_k)
    yield ("--moe-ffn-hidden-size", moe.intermediate)
    yield ("--expert-model-parallel-size", plan.ep)
    if moe.shared_intermediate:
        yield ("--moe-shared-expert-intermediate-size", moe.shared_intermediate)
    yield ("--moe-token-dispatcher-type", "alltoall")
    yield ("--moe-grouped-gemm",)
    yield ("--moe-router-load-balancing-type", "aux_loss")
    yield ("--moe-aux-loss-coeff", 0.01)
    if plan.capacity_factor:
        yield ("--moe-expert-capacity-factor", plan.capacity_factor)
        yield ("--moe-pad-expert-input-to-capacity",)


def _recompute(model: ModelSpec, plan: Plan) -> Iterator[Argument]:
    if plan.recompute == Recompute.SELECTIVE:
        yield ("--recompute-granularity", "selective")
    elif plan.recompute == Recompute.MLP:
        yield ("--recompute-granularity", "selective")
        yield ("--recompute-modules", "mlp")
    elif plan.recompute == Recompute.FULL:
        yield ("--recompute-granularity", "full")
        if plan.recompute_layers < 0:
            yield ("--recompute-method", "uniform")
            yield ("--recompute-num-layers", 1)
        else:
            yield ("--recompute-method", "block")
            yield ("--recompute-num-layers", plan.recompute_layers)


def megatron_deepspeed_arguments(planned: Planned) -> list[Argument]:
    """Arguments of Megatron-DeepSpeed's pretrain_gpt.py (megatron/arguments.py there)."""
    planned.only("megatron_deepspeed", Software.MEGATRON_DEEPSPEED)
    model, training, plan = planned.model, planned.training, planned.plan
    if len(set(planned.stage_layers)) > 1:
        raise NotExportable(
            f"Megatron-DeepSpeed cuts its layers evenly, and the plan's stages have "
            f"{', '.join(map(str, planned.stage_layers))}; use deepspeed_pipeline or megatron"
        )
    out = list(_model(model, training, core=False))
    out.append(("--tensor-model-parallel-size", plan.tp))
    out.append(("--pipeline-model-parallel-size", plan.pp))
    if plan.pp == 1:
        out.append(("--no-pipeline-parallel",))
    if plan.sequence_parallel and plan.tp > 1:
        out.append(("--sequence-parallel",))
    if plan.sp > 1:
        out.append(("--ds-sequence-parallel-size", plan.sp))
    moe = geometry(model).layer.moe
    if moe is not None:
        out += [("--num-experts", moe.experts), ("--topk", moe.top_k)]
        out += [("--moe-expert-parallel-size", plan.ep), ("--create-moe-param-group",)]
        if plan.capacity_factor:
            out.append(("--moe-train-capacity-factor", plan.capacity_factor))
    out += [("--deepspeed",), ("--deepspeed_config", "ds_config.json")]
    out.append(("--zero-stage", plan.zero_stage))
    if plan.recompute != Recompute.NONE:
        out += [("--deepspeed-activation-checkpointing",), ("--checkpoint-activations",)]
        out.append(("--checkpoint-num-layers", 1))
        if plan.partition_activations:
            out.append(("--partition-activations",))
        if plan.cpu_checkpointing:
            out.append(("--checkpoint-in-cpu",))
    if plan.offload_optimizer != Offload.NONE:
        out.append(("--cpu-optimizer",))
    if training.attention in ("flash1", "flash2"):
        out.append(
            ("--use-flash-attn-v2",) if training.attention == "flash2" else ("--use-flash-attn",)
        )
    out += _training(training, plan)
    return out


def _file(arguments: list[Argument]) -> str:
    """Arguments of a launch script: one flag a line, quoted, in a bash array."""
    rows = "\n".join("  " + lines(row, ()) for row in arguments)
    head = "# shellcheck shell=bash disable=SC2034\n# Read by the launch scripts.\n"
    return f"{head}MEGATRON_ARGS=(\n{rows}\n)\n"


def megatron_lm(planned: Planned) -> Exported:
    """megatron_args.sh: a bash array of arguments."""
    return Exported("megatron_args.sh", {"megatron_args.sh": _file(megatron_lm_arguments(planned))})


def megatron_deepspeed(planned: Planned) -> Exported:
    """megatron_args.sh and the ds_config, every value concrete."""
    config = ds_config(planned.model, planned.cluster, planned.training, planned.plan)
    return Exported(
        "megatron_args.sh",
        {
            "megatron_args.sh": _file(megatron_deepspeed_arguments(planned)),
            "ds_config.json": json.dumps(config, indent=2) + "\n",
        },
    )
