"""The engine that a plan asks for, around the model, on real devices: what a worker trains."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cost_model.plans import Offload, Plan, Software
from trials.adapt import adapted
from trials.model.build import Build, build_model, own_tensor_parallel
from trials.model.init import fill
from trials.parallel.mesh import Axis, Mesh, build_mesh
from trials.parallel.mpu import Mpu
from trials.trial_file import TrialFile
from trials.user_model import build_user_model, check_plan, user_model_name

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

Batch = tuple[Tensor, Tensor]
"""Token ids and labels of one micro-batch, each [b, s of this rank]."""


@dataclass
class StepParts:
    """Seconds of the parts of one optimizer step, and its loss (NaN where this rank has none)."""

    forward: float
    backward: float
    step: float
    loss: float


class Trainer(Protocol):
    """An engine that can take an optimizer step."""

    engine: Any
    mesh: Mesh
    notes: list[str]

    def train_step(self, batches: list[Batch], sync: Callable[[], None]) -> StepParts:
        """One optimizer step over all its micro-batches."""


@dataclass
class PlainTrainer:
    """DeepSpeed's engine around the whole model."""

    engine: Any
    mesh: Mesh
    notes: list[str]
    loss_scale: float = 1.0
    on_phase: Callable[[str], None] = lambda name: None
    extra_loss: Callable[[nn.Module], Tensor | None] | None = None
    """Added to each micro-batch's loss: router losses and such."""
    guard: Callable[[Callable[[], Tensor]], Tensor] = lambda run: run()
    """Around each forward and each backward pass: ranks that agree on running out of memory."""

    def train_step(self, batches: list[Batch], sync: Callable[[], None]) -> StepParts:
        """Forward, backward and step of each micro-batch."""
        parts = StepParts(0.0, 0.0, 0.0, 0.0)
        for ids, labels in batches:
            marks = [time.perf_counter()]
            self.on_phase("forward")
            loss = self.guard(partial(self.engine, ids, labels))
            extra = self.extra_loss(self.engine.module) if self.extra_loss else None
            sync()
            marks.append(time.perf_counter())
            self.on_phase("backward")
            # Ulysses below ZeRO 3: the engine sums over the sequence ranks where it should average.
            whole = loss if extra is None else loss + extra
            scaled = whole * self.loss_scale if self.loss_scale != 1 else whole
            self.guard(partial(self.engine.backward, scaled))
            sync()
            marks.append(time.perf_counter())
            self.on_phase("step")
            self.engine.step()
            sync()
            marks.append(time.perf_counter())
            parts.forward += marks[1] - marks[0]
            parts.backward += marks[2] - marks[1]
            parts.step += marks[3] - marks[2]
            parts.loss += float(loss.detach()) / len(batches)
        return parts


@dataclass
class PipelineTrainer:
    """DeepSpeed's pipeline engine: its schedule mixes forward and backward."""

    engine: Any
    mesh: Mesh
    notes: list[str]
    on_phase: Callable[[str], None] = lambda name: None

    def train_step(self, batches: list[Batch], sync: Callable[[], None]) -> StepParts:
        """One run of the schedule; its whole time is under `forward`."""
        self.on_phase("forward")
        began = time.perf_counter()
        loss = self.engine.train_batch(data_iter=iter(batches))
        sync()
        return StepParts(time.perf_counter() - began, 0.0, 0.0, float(loss))


def build_trainer(
    trial: TrialFile, rank: int, device: torch.device
) -> PlainTrainer | PipelineTrainer:
    """The engine of a plan on this rank; the process group exists already.

    Raises what the engine raises where it refuses the config.
    """
    plan = trial.plan
    if user_model_name() is not None:
        check_plan(plan)
    config, notes = adapted(trial.ds_config, plan, cpu=device.type == "cpu")
    mesh = build_mesh(plan, rank)
    _allow_half_on_cpu(device)
    if (plan.software is not Software.DEEPSPEED and plan.pp > 1) or (
        plan.software is Software.DEEPSPEED_PIPELINE
    ):
        return _pipeline(trial, mesh, config, notes, device)
    return _plain(trial, mesh, config, notes, device)


def _allow_half_on_cpu(device: torch.device) -> None:
    """PyTorch trains fp16 on a CPU; DeepSpeed's accelerator says that it cannot."""
    if device.type == "cpu":
        from deepspeed.accelerator import get_accelerator

        type(get_accelerator()).is_fp16_supported = lambda self: True


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """New parameters are of this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _plain(
    trial: TrialFile, mesh: Mesh, config: dict[str, Any], notes: list[str], device: torch.device
) -> PlainTrainer:
    import deepspeed

    plan = trial.plan
    # AutoTP cuts a whole model; the own layers are built cut.
    built = mesh if own_tensor_parallel(plan.software) else without_tensor_axis(mesh)
    needs_mpu = plan.sp * plan.cp > 1 or (plan.tp > 1 and own_tensor_parallel(plan.software))
    mpu = Mpu(mesh) if needs_mpu else None
    build = Build.of_plan(trial.model, trial.training, plan, built)
    if built is not mesh:
        build = replace(build, engine_tp=mesh.tp)
    module: nn.Module
    own = user_model_name()
    if own is not None:
        module = _users(own, trial, config, notes)
    elif plan.zero_stage == 3:
        module = _partitioned(build, trial, config, mpu)
    else:
        with default_dtype(DTYPES[trial.training.precision]):
            module = build_model(build, seed=trial.seed)
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = _optimizer(config, moe_groups(parameters), plan, device)
    engine, *_ = deepspeed.initialize(
        model=module,
        model_parameters=moe_groups(parameters),
        optimizer=optimizer,
        config=config,
        mpu=mpu,
    )
    if plan.partition_activations or plan.cpu_checkpointing:
        # Without this call the config's block does nothing.
        deepspeed.checkpointing.configure(mpu, deepspeed_config=config)
    sequence = plan.sp * plan.cp
    return PlainTrainer(
        engine, mesh, notes, loss_scale=1 / sequence if plan.zero_stage < 3 else 1.0
    )


def _users(name: str, trial: TrialFile, config: dict[str, Any], notes: list[str]) -> nn.Module:
    """The user's model, partitioned as it is made under ZeRO 3."""
    import deepspeed

    partitioned: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if trial.plan.zero_stage == 3:
        partitioned = deepspeed.zero.Init(config_dict_or_path=config)
    # The names of the trial model's matrices; AutoTP knows those of transformers itself.
    config.get("tensor_parallel", {}).pop("partition_config", None)
    with default_dtype(DTYPES[trial.training.precision]), partitioned:
        module, told = build_user_model(name, trial.model, trial.training, trial.plan, trial.seed)
    notes += told
    return module


def _optimizer(
    config: dict[str, Any], parameters: Any, plan: Plan, device: torch.device
) -> torch.optim.Optimizer | None:
    """The optimizer that a config without one is used with: Megatron's, PyTorch's on a CPU."""
    if "optimizer" in config:
        return None
    if plan.offload_optimizer is not Offload.NONE and device.type != "cpu":
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        made: torch.optim.Optimizer = DeepSpeedCPUAdam(parameters, lr=1e-4)
        return made
    return torch.optim.AdamW(parameters, lr=1e-4)


def without_tensor_axis(mesh: Mesh) -> Mesh:
    """The mesh for a model that the engine cuts afterwards."""
    return Mesh(pp=mesh.pp, dp=mesh.dp, cp=mesh.cp, sp=mesh.sp, tp=Axis(), zero=mesh.zero)


def moe_groups(parameters: list[nn.Parameter]) -> Any:
    """Parameter groups in which experts stand apart, as the engine wants them."""
    if all(getattr(p, "allreduce", True) for p in parameters):
        return parameters
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

    return split_params_into_different_moe_groups_for_optimizer(
        {"params": parameters, "name": "all"}
    )


def _partitioned(
    build: Build, trial: TrialFile, config: dict[str, Any], mpu: Mpu | None
) -> nn.Module:
    """A model that is partitioned as it is made, then filled one parameter at a time."""
    import deepspeed

    with (
        default_dtype(DTYPES[trial.training.precision]),
        deepspeed.zero.Init(config_dict_or_path=config, mpu=mpu),
    ):
        module = build_model(build)
    for name, parameter in module.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0), torch.no_grad():
            fill(parameter, name, trial.seed, build.mesh.tp)
    return module


def _pipeline(
    trial: TrialFile, mesh: Mesh, config: dict[str, Any], notes: list[str], device: torch.device
) -> PipelineTrainer:
    import deepspeed
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    from trials.model.stages import pipeline_module

    plan = trial.plan
    build = Build.of_plan(trial.model, trial.training, plan, mesh)
    topology = PipeModelDataParallelTopology(num_pp=plan.pp, num_mp=plan.tp, num_dp=plan.dp)
    with default_dtype(DTYPES[trial.training.precision]):
        module = pipeline_module(build, topology, seed=trial.seed)
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = _optimizer(config, moe_groups(parameters), plan, device)
    engine, *_ = deepspeed.initialize(
        model=module,
        model_parameters=moe_groups(parameters),
        optimizer=optimizer,
        config=config,
    )
    return PipelineTrainer(engine, mesh, notes)
