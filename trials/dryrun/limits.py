"""What a dry run cannot do, with the reason, and what it does not see. No torch here."""

from cost_model.plans import Offload, Plan, Software
from cost_model.specs import ModelSpec, TrainingSpec
from trials.preflight import refusal

NOT_SEEN = (
    "Allocated bytes only: what the caching allocator reserves beyond them, the CUDA context, "
    "NCCL and cuBLAS workspaces come from the cost model (predicted.not_in_dry_run_gib)."
)


def reason_against(model: ModelSpec, training: TrainingSpec, plan: Plan) -> str | None:
    """Why this plan has no dry run; None where it has one. Before any process is started."""
    return (
        refusal(plan, training.seq_len, ranks=plan.world_size)
        or _software_reason(model, training, plan)
        or _layout_reason(model, plan)
    )


def _software_reason(model: ModelSpec, training: TrainingSpec, plan: Plan) -> str | None:
    if model.family == "encoder_decoder":
        return "encoder-decoder models are not built in dry runs"
    if training.lora is not None and plan.tp > 1:
        return "LoRA with tensor parallelism is not built in dry runs"
    if plan.quantized_weights or plan.quantized_gradients:
        return "ZeRO++ quantization runs compiled kernels whose buffers are not known here"
    if plan.cpu_checkpointing and not plan.partition_activations:
        return "the exported config keeps activations on the host only where it partitions them"
    if model.is_moe and plan.software is Software.DEEPSPEED and plan.tp > 1:
        return "AutoTP does not cut DeepSpeed's MoE layer"
    return None


def _layout_reason(model: ModelSpec, plan: Plan) -> str | None:
    shared = plan.tp * plan.sp
    for kind in model.kinds:
        a = kind.attention
        if a is not None and a.heads % shared:
            return f"{a.heads} attention heads cannot be cut over tp x sp = {shared} ranks"
    experts = [kind.moe.experts for kind in model.kinds if kind.moe is not None]
    if plan.ep > 1 and not experts:
        return "expert parallelism needs a model with experts"
    if any(count % plan.ep for count in experts):
        return f"{min(experts)} experts cannot be cut over ep = {plan.ep} ranks"
    if plan.pp > model.layers:
        return f"{model.layers} layers cannot be cut into {plan.pp} stages"
    return None


def notes(model: ModelSpec, plan: Plan) -> tuple[str, ...]:
    """What the figures of this plan leave out or assume."""
    said = [NOT_SEEN]
    if plan.compile:
        said.append("Compiled graphs are run uncompiled; fusion keeps fewer activations.")
    if model.is_moe and not plan.capacity_factor:
        said.append("Every expert is sent an even share of the tokens.")
    if Offload.NVME in (plan.offload_optimizer, plan.offload_param):
        said.append("Bytes on NVMe are not counted; the host's hold the buffers they pass through.")
    if plan.pp > 2:
        said.append("Stages between the first and the last are run only where asked for.")
    return tuple(said)
