"""Plans of every kind, on a small model and a real cluster."""

from cost_model import catalogue
from cost_model.plans import Plan
from cost_model.specs import ModelGeometry, ModelSpec, TrainingSpec
from planner.export.options import ExportOptions
from planner.export.result import Planned


def small() -> ModelSpec:
    """A Llama of a quarter million parameters."""
    return ModelGeometry(
        name="small", hidden=64, layers=4, heads=4, kv_heads=2, intermediate=128, vocab=256,
        max_seq_len=64,
    ).spec()  # fmt: skip


def small_moe() -> ModelSpec:
    """The same with experts."""
    return ModelGeometry(
        name="small-moe", hidden=64, layers=4, heads=4, intermediate=128, vocab=256,
        max_seq_len=64, experts=4, top_k=2, moe_intermediate=64,
    ).spec()  # fmt: skip


PLANS: dict[str, Plan] = {
    "zero1": Plan(dp=4, zero_stage=1, micro_batch=2),
    "zero2-recompute": Plan(dp=2, zero_stage=2, recompute="full", grad_accum=2),
    "zero2-offload": Plan(dp=2, zero_stage=2, offload_optimizer="cpu"),
    "zero3": Plan(dp=2, zero_stage=3, micro_batch=2),
    "zero3-nvme": Plan(dp=2, zero_stage=3, offload_param="nvme", offload_optimizer="nvme"),
    "two-nodes": Plan(nodes=2, dp=16, zero_stage=3),
    "autotp": Plan(tp=2, dp=2, zero_stage=2),
    "ulysses": Plan(sp=2, dp=1, zero_stage=3),
    "pipeline": Plan(software="deepspeed_pipeline", pp=2, dp=1, zero_stage=1, grad_accum=4),
    "pipeline-uneven": Plan(
        software="deepspeed_pipeline", pp=2, dp=1, zero_stage=1, grad_accum=4,
        first_stage_layers=3, last_stage_layers=1,
    ),
    "pipeline-placed": Plan(
        software="deepspeed_pipeline", pp=2, dp=1, zero_stage=1, grad_accum=4, placement="1x3",
    ),
    "zero3-mlp": Plan(dp=2, zero_stage=3, recompute="mlp", recompute_layers=1),
    "experts": Plan(dp=2, ep=2, zero_stage=2, capacity_factor=1.25),
    "megatron-deepspeed": Plan(
        software="megatron_deepspeed", tp=2, pp=2, dp=2, zero_stage=1, grad_accum=4,
        recompute="full",
    ),
    "megatron": Plan(
        software="megatron", tp=2, pp=2, vpp=2, dp=2, zero_stage=1, grad_accum=4,
        sequence_parallel=True, recompute="selective",
    ),
    "megatron-uneven": Plan(
        software="megatron", nodes=2, pp=3, dp=2, zero_stage=1, grad_accum=6,
        first_stage_layers=1, last_stage_layers=1,
    ),
    "megatron-placed": Plan(
        software="megatron", pp=2, dp=4, zero_stage=1, grad_accum=4, placement="1x3",
    ),
    "fsdp": Plan(software="fsdp", dp=2, zero_stage=3, recompute="full"),
}  # fmt: skip


def planned(name: str, options: ExportOptions | None = None, precision: str = "bf16") -> Planned:
    """A plan with its world."""
    plan = PLANS[name]
    model = small_moe() if plan.ep > 1 else small()
    training = TrainingSpec(seq_len=64, global_batch=plan.global_batch, precision=precision)
    cluster = catalogue.cluster("dgx-a100-80g", plan.nodes)
    return Planned(model, cluster, training, plan, options or ExportOptions())
