"""Environment variables with the reason for each, and pinned packages with known-bad versions."""

from collections.abc import Iterator
from dataclasses import dataclass

from cost_model.plans import Offload, Software
from planner.export.quoting import words
from planner.export.result import Exported, Planned

DEEPSPEED = (Software.DEEPSPEED, Software.DEEPSPEED_PIPELINE, Software.MEGATRON_DEEPSPEED)
MEGATRON = (Software.MEGATRON, Software.MEGATRON_DEEPSPEED)


@dataclass(frozen=True)
class Variable:
    """One variable and why it is set."""

    name: str
    value: str
    why: str


def variables(planned: Planned) -> list[Variable]:
    """Only names that PyTorch, NCCL, DeepSpeed, libfabric or OpenMP read."""
    return [*_pytorch(planned), *_nccl(planned), *_host(planned)]


def _pytorch(planned: Planned) -> Iterator[Variable]:
    yield Variable(
        "PYTORCH_CUDA_ALLOC_CONF",
        "expandable_segments:True",
        "segments that grow: less reserved beyond what is allocated",
    )
    yield Variable(
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "1",
        "a rank whose peer died stops instead of waiting for ever",
    )
    if planned.plan.world_size > 1:
        yield Variable(
            "TORCH_NCCL_DUMP_ON_TIMEOUT",
            "1",
            "a time-out writes which collective each rank was in",
        )
        yield Variable(
            "TORCH_FR_BUFFER_SIZE",
            "2000",
            "how many collectives the record above remembers",
        )
    if planned.plan.software in DEEPSPEED:
        yield Variable(
            "DEEPSPEED_TIMEOUT",
            "30",
            "minutes until a collective times out (an argument of init_process_group; NCCL has no "
            "variable for it): loading and saving large models takes longer than the default 10",
        )


def _nccl(planned: Planned) -> Iterator[Variable]:
    if planned.plan.world_size == 1:
        return
    yield Variable("NCCL_DEBUG", "WARN", "errors of the network name their cause")
    if planned.nodes > 1:
        kind = planned.cluster.network.kind
        if kind in ("infiniband", "roce"):
            yield Variable(
                "NCCL_IB_DISABLE",
                "0",
                "InfiniBand verbs on: with 1, traffic between nodes falls back to TCP",
            )
        elif kind == "ethernet":
            yield Variable(
                "NCCL_IB_DISABLE", "1", "plain Ethernet: no search for InfiniBand devices"
            )
        elif kind == "efa":
            yield Variable("FI_PROVIDER", "efa", "libfabric takes EFA, not TCP")
            yield Variable("FI_EFA_USE_DEVICE_RDMA", "1", "GPUDirect RDMA over EFA")
    if planned.plan.software in MEGATRON and (planned.plan.tp > 1 or planned.plan.cp > 1):
        yield Variable(
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "1",
            "Megatron's overlap of tensor-parallel communication needs kernels in launch order",
        )


def _host(planned: Planned) -> Iterator[Variable]:
    cores = max(1, planned.cluster.node.cpu_cores // planned.gpus_per_node)
    offloads = planned.plan.offload_optimizer != Offload.NONE
    why = "physical cores of a node over its ranks"
    if offloads:
        why += ": the offloaded optimizer runs on them"
    yield Variable("OMP_NUM_THREADS", str(cores), why)


@dataclass(frozen=True)
class Package:
    """One requirement with what is known of its versions."""

    line: str
    note: str


def packages(planned: Planned) -> list[Package]:
    """Pins that the plan was checked with, and what breaks."""
    plan, out = planned.plan, [Package("torch==2.13.0", "2.0 is the least for DeepSpeed 0.19")]
    if plan.software in DEEPSPEED:
        least = "0.19.8 is what configs are checked with."
        if plan.tp > 1 and plan.software == Software.DEEPSPEED:
            least += " AutoTP needs 0.16.4; with ZeRO-3 it is refused before 0.19.5."
        if plan.zero_stage >= 2:
            least += (
                " Never 0.16.0: with ZeRO-2 and 3 it refuses no_sync, which transformers 4.46 "
                "calls under gradient accumulation."
            )
        if planned.model.is_moe and plan.zero_stage == 3:
            least += " leaf_module needs 0.18."
        out.append(Package("deepspeed==0.19.8", least))
    if plan.software in (Software.DEEPSPEED, Software.FSDP):
        out.append(Package("transformers==5.24.0", "4.47 or newer with DeepSpeed 0.16.1 or newer"))
        out.append(Package("accelerate==1.15.0", "1.2 or newer with DeepSpeed 0.16.1 or newer"))
    if plan.software == Software.MEGATRON:
        out.append(
            Package("megatron-core>=0.12", "pretrain_gpt.py is in its repository, not the package")
        )
    if Offload.NVME in (plan.offload_optimizer, plan.offload_param):
        out.append(Package("ninja", "builds async_io at first use; libaio-dev must be installed"))
    return out


def environment(planned: Planned) -> Exported:
    """env.sh, to be sourced on every node, and requirements.txt."""
    rows = ["# Sourced by the launch scripts on every node. One reason for each line."]
    for variable in variables(planned):
        rows.append(f"# {variable.why}")
        rows.append(f"export {variable.name}={words([variable.value])[0]}")
    needs = []
    for package in packages(planned):
        needs += [f"# {package.note}", package.line]
    return Exported(
        "env.sh",
        {
            "env.sh": "# shellcheck shell=bash\n" + "\n".join(rows) + "\n",
            "requirements.txt": "\n".join(needs) + "\n",
        },
    )
