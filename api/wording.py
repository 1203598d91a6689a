"""Plans and requests in short, for people; without the web and job frameworks."""

from collections.abc import Mapping
from typing import Any

from cost_model.plans import Plan
from planner.request import Resolved

GIB = 2**30

_LETTERS = (("tp", "tp"), ("pp", "pp"), ("dp", "dp"), ("sp", "sp"), ("cp", "cp"), ("ep", "ep"))


def summary(plan: Plan) -> str:
    """The knobs that matter, in one line; degrees of 1 are left out."""
    parts = [plan.software.name.lower()]
    parts += [
        f"{name}{getattr(plan, column)}" for name, column in _LETTERS if getattr(plan, column) > 1
    ]
    if plan.placement:
        parts.append(f"placed{plan.placement}")
    parts.append(f"zero{plan.zero_stage}")
    parts.append(f"mb{plan.micro_batch}x{plan.grad_accum}")
    if plan.recompute:
        layers = "" if plan.recompute_layers < 0 else f"({plan.recompute_layers} layers)"
        parts.append(f"recompute-{plan.recompute.name.lower()}{layers}")
    if plan.offload_optimizer:
        share = "" if plan.offload_ratio == 1 else f"({100 * plan.offload_ratio:.0f}%)"
        parts.append(f"optimizer-on-{plan.offload_optimizer.name.lower()}{share}")
    if plan.offload_param:
        parts.append(f"params-on-{plan.offload_param.name.lower()}")
    first, last = plan.first_stage_layers, plan.last_stage_layers
    flags = (
        (first > 0 or last > 0, f"ends-of-{first}-and-{last}-layers"),
        (plan.sequence_parallel, "sequence-parallel"),
        (plan.vpp > 1, f"interleaved{plan.vpp}"),
        (plan.hpz > 1, f"hpz{plan.hpz}"),
        (plan.quantized_weights, "qwz"),
        (plan.quantized_gradients, "qgz"),
        (plan.partition_activations, "partitioned-activations"),
        (plan.cpu_checkpointing, "checkpoints-on-cpu"),
        (plan.chunked_loss, "chunked-loss"),
        (plan.compile, "compile"),
    )
    parts += [name for on, name in flags if on]
    return " ".join(parts)


def summary_of(resolved: Resolved) -> dict[str, Any]:
    """What a request resolved to, in short."""
    model, cluster, training = resolved.model, resolved.cluster, resolved.training
    return {
        "model": {
            "name": model.name,
            "architecture": model.architecture,
            "parameters": model.params,
            "notes": list(model.notes),
        },
        "cluster": {
            "name": cluster.name,
            "nodes": cluster.nodes,
            "gpus": cluster.gpus,
            "gpu": cluster.node.gpu.name,
        },
        "training": training.model_dump(mode="json", exclude_none=True),
        "objective": resolved.search.objective,
    }


def method_of(training: Mapping[str, Any]) -> str:
    """What is trained, of a training run as plain data: all weights, or adapters."""
    lora = training.get("lora")
    if lora is None:
        return "all weights"
    kind = "QLoRA" if lora["quantized_base"] else "LoRA"
    doubled = ", double quantized" if lora.get("double_quantized") else ""
    return f"{kind} of rank {lora['rank']}{doubled}"


def standing(status: str) -> str:
    """A job's status as the end of a sentence: has failed, was cancelled, is running."""
    verb = {"succeeded": "has", "failed": "has", "cancelled": "was"}.get(status, "is")
    return f"{verb} {status}"
