"""The README of a bundle: what to run, what to expect, what to do when it differs."""

from cost_model.plans import Plan, PlanTable, Software
from planner.candidate import GIB, Candidate, candidate
from planner.export.environment import packages
from planner.export.result import Planned
from planner.ranking import evaluate
from planner.rules import World

STEPS = {
    Software.DEEPSPEED: ("launch_deepspeed.sh", "launch_torchrun.sh", "launch_accelerate.sh"),
    Software.DEEPSPEED_PIPELINE: ("launch_deepspeed.sh", "launch_torchrun.sh"),
    Software.MEGATRON_DEEPSPEED: ("launch_deepspeed.sh", "launch_torchrun.sh"),
    Software.MEGATRON: ("launch_torchrun.sh",),
    Software.FSDP: ("launch_torchrun.sh",),
}


def prediction(planned: Planned) -> Candidate:
    """What the cost model says of the plan."""
    world = World(planned.model, planned.cluster, planned.training)
    table = PlanTable.from_plans([planned.plan])
    return candidate(world, table, evaluate(world, table), 0)


def _knobs(plan: Plan) -> list[str]:
    standard = Plan()
    changed = {
        name: value
        for name, value in plan.model_dump(mode="json").items()
        if value != standard.model_dump(mode="json")[name]
    }
    return [f"| {name} | {value} |" for name, value in changed.items()]


def readme(planned: Planned, names: list[str]) -> str:
    """Markdown; every figure from the prediction of this plan."""
    one = prediction(planned)
    memory, step = one.memory, one.step
    scripts = [s for s in STEPS[planned.plan.software] if s in names]
    phases = [f"| {name} | {size / GIB:.1f} |" for name, size in memory.phases.items()]
    parts = [f"| {name} | {size / GIB:.1f} |" for name, size in memory.categories.items() if size]
    times = [f"| {name} | {seconds:.3f} |" for name, seconds in step.parts.items() if seconds]
    each = "on every node" if planned.nodes > 1 else ""
    rows = [
        f"# {planned.model.name} on {planned.nodes} x {planned.gpus_per_node} "
        f"{planned.cluster.node.gpu.name}",
        "",
        "## Run",
        "1. On every node: `pip install -r requirements.txt`",
        *[f"   - `{p.line}`: {p.note}" for p in packages(planned)],
        *(
            [
                "2. Set `MEGATRON_PATH` to the checkout that holds pretrain_gpt.py, and add the "
                "data's "
                "and tokenizer's arguments."
            ]
            if "megatron_args.sh" in names
            else []
        ),
        f"2. Start one of: {', '.join(f'`./{s}`' for s in scripts)}"
        + (f" ({each}; DeepSpeed's launcher on the first alone)" if each else "")
        + ", `sbatch job.sbatch`, or `kubectl apply -f trainjob.yaml`.",
        "3. `train.py` trains on random tokens: put your own data and weights in once it runs."
        if "train.py" in names
        else "",
        "",
        "## Plan",
        "| knob | value |",
        "|---|---|",
        *_knobs(planned.plan),
        "",
        "## Expect",
        f"- Step time {step.seconds:.2f} s (90 % of measured runs lie between "
        f"{step.seconds_low:.2f} and {step.seconds_high:.2f}), {step.tokens_per_s:.0f} tokens/s, "
        f"MFU {step.mfu:.1%}.",
        f"- Memory of the worst GPU {memory.total_bytes / GIB:.1f} GiB (between "
        f"{memory.total_bytes_low / GIB:.1f} and {memory.total_bytes_high / GIB:.1f}) of "
        f"{memory.capacity_bytes / GIB:.1f}; allocated {memory.allocated_bytes / GIB:.1f}, "
        f"reserved "
        f"{memory.reserved_bytes / GIB:.1f}. Fits with probability {one.fits_probability:.0%}.",
        f"- Host memory {memory.host_bytes / GIB:.0f} GiB of "
        f"{memory.host_capacity_bytes / GIB:.0f} "
        "on each node.",
        "",
        "| phase | GiB |",
        "|---|---|",
        *phases,
        "",
        "| at the peak | GiB |",
        "|---|---|",
        *parts,
        "",
        "| step | s |",
        "|---|---|",
        *times,
        "",
        "## When it differs",
        *_differs(planned),
    ]
    return "\n".join(rows) + "\n"


def _differs(planned: Planned) -> list[str]:
    plan = planned.plan
    rows = [
        "- Out of memory in the first forward or backward: activations. Halve the micro-batch and "
        "double the accumulation, or recompute more layers.",
        "- Out of memory at the optimizer step: states. Raise the ZeRO stage or offload the "
        "optimizer; the table above says what the step needs.",
        "- Out of memory while loading: the whole model is built before it is sharded. Build it "
        "under zero.Init (ZeRO-3) or on the meta device.",
        "- Memory above the interval with the same plan: compare reserved with allocated; a large "
        "gap is fragmentation (PYTORCH_CUDA_ALLOC_CONF).",
        "- Exit code -9 without a message: the host ran out of memory, not the GPU.",
        "- Slower than the interval: look at clocks and temperature of every GPU, then at the "
        "network (`NCCL_DEBUG=INFO` names the transport).",
        "- A time-out of a collective: one rank is late or dead. The record that "
        "TORCH_NCCL_DUMP_ON_TIMEOUT writes names it.",
    ]
    if plan.software == Software.DEEPSPEED and plan.tp > 1:
        rows.append(
            f"- With AutoTP the engine prints a batch {plan.tp} times too large: it counts TP "
            f"ranks."
        )
    if plan.pp > 1:
        rows.append(
            "- A pipeline's bubble shrinks with more micro-batches (gradient accumulation)."
        )
    return rows
