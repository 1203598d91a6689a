"""The training loop of a dry run, cut into phases."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Protocol

import torch

from cost_model.plans import Software
from trials.adapt import adapted
from trials.dryrun.device import NAME
from trials.dryrun.engine import keep_in_place
from trials.dryrun.result import DryRunTask
from trials.engines import DTYPES, default_dtype, moe_groups, without_tensor_axis
from trials.model import Build, build_model
from trials.model.build import own_tensor_parallel
from trials.parallel.mesh import Mesh
from trials.parallel.mpu import Mpu

DEVICE = f"{NAME}:0"

Enter = Callable[[str, str], None]
"""Called with the name of a phase and which micro-batch it is (first, last or none)."""


class Trainer(Protocol):
    """An engine and one optimizer step of it."""

    engine: Any

    def step(self, enter: Enter) -> None:
        """One optimizer step, which says what it does."""


@dataclass
class PlainTrainer:
    """The engine around a whole model: forward, backward, step."""

    engine: Any
    task: DryRunTask

    def step(self, enter: Enter) -> None:
        """Of the micro-batches of a step the first and the last, which hold all there is."""
        last_only = self.task.plan.grad_accum == 1
        for micro in ("last",) if last_only else ("first", "last"):
            if not last_only:
                self.engine.set_gradient_accumulation_boundary(micro == "last")
            enter("forward", micro)
            ids = token_ids(self.task)
            loss = self.engine(ids, ids)
            enter("backward", micro)
            self.engine.backward(loss)
            del loss
            enter("step", micro)
            self.engine.step()


@dataclass
class PipelineTrainer:
    """The pipeline engine: one stage under its own schedule, its neighbours imagined."""

    engine: Any
    task: DryRunTask
    phases: dict[str, str] = field(
        default_factory=lambda: {
            "ForwardPass": "forward",
            "BackwardPass": "backward",
            "OptimizerStep": "step",
            "ReduceGrads": "step",
        }
    )

    def __post_init__(self) -> None:
        plan = self.task.plan
        # No more micro-batches are ever in flight than there are stages.
        self.engine.micro_batches = min(plan.grad_accum, 2 * plan.pp)
        self.engine._recv_tensor_meta = MethodType(_arriving(self.task), self.engine)

    def step(self, enter: Enter) -> None:
        """One run of the schedule."""
        originals = dict(self.engine._INSTRUCTION_MAP)
        for command, run in originals.items():
            phase = self.phases.get(command.__name__)
            if phase is not None:
                self.engine._INSTRUCTION_MAP[command] = _entering(run, phase, enter)
        ids = token_ids(self.task)
        try:
            self.engine.train_batch(data_iter=iter([(ids, ids)] * self.engine.micro_batches))
        finally:
            self.engine._INSTRUCTION_MAP.update(originals)


def _entering(run: Callable[..., Any], phase: str, enter: Enter) -> Callable[..., Any]:
    def entered(self: Any, *args: Any, **kwargs: Any) -> Any:
        enter(phase, "none")
        return run(self, *args, **kwargs)

    return entered


def _arriving(task: DryRunTask) -> Callable[..., Any]:
    """The buffer for what the previous stage sends, whose shape no one is there to tell."""
    plan, training = task.plan, task.training
    length = training.seq_len // (plan.tp if plan.sequence_parallel else 1)

    def receive(self: Any, stage: int) -> Any:
        shape = [plan.micro_batch, length, task.model.hidden]
        return self._allocate_or_extend_buffers(0, shape, DTYPES[training.precision])

    return receive


def token_ids(task: DryRunTask) -> torch.Tensor:
    """One micro-batch of this rank [micro_batch, its part of the sequence]."""
    plan = task.plan
    shape = (plan.micro_batch, task.training.seq_len // (plan.sp * plan.cp))
    return torch.zeros(shape, dtype=torch.long, device=DEVICE)


def build(task: DryRunTask, mesh: Mesh, mpu: Mpu | None) -> Trainer:
    """Builds the model and the engine as a training script does; inside the fake mode."""
    config, _ = adapted(task.ds_config, task.plan, cpu=False)
    _put_swap_files_here(config)
    if pipelined(task):
        return _pipeline(task, mesh, config)
    return _plain(task, mesh, config, mpu)


def _put_swap_files_here(config: dict[str, Any]) -> None:
    """The engine makes the folder of its NVMe files, which on this machine may not be allowed."""
    for part in ("offload_optimizer", "offload_param"):
        block = config.get("zero_optimization", {}).get(part)
        if block and block.get("device") == "nvme":
            block["nvme_path"] = tempfile.gettempdir()


def pipelined(task: DryRunTask) -> bool:
    """Whether the plan runs in the pipeline engine."""
    plan = task.plan
    return plan.software is Software.DEEPSPEED_PIPELINE or (
        plan.software is Software.MEGATRON_DEEPSPEED and plan.pp > 1
    )


def needs_mpu(task: DryRunTask) -> bool:
    """Whether the engine has to be told the groups."""
    plan = task.plan
    own = plan.tp > 1 and own_tensor_parallel(plan.software)
    return not pipelined(task) and (plan.sp * plan.cp > 1 or own)


def _optimizer(config: dict[str, Any], parameters: Any) -> Any:
    """Megatron-DeepSpeed brings its own fused Adam; other configs name theirs."""
    if "optimizer" in config:
        return None
    from deepspeed.ops.adam import FusedAdam

    return FusedAdam(parameters, lr=1e-4)


def _plain(task: DryRunTask, mesh: Mesh, config: dict[str, Any], mpu: Mpu | None) -> PlainTrainer:
    import deepspeed

    plan = task.plan
    own = own_tensor_parallel(plan.software)
    spec = Build.of_plan(
        task.model, task.training, plan, mesh if own else without_tensor_axis(mesh)
    )
    with ExitStack() as stack:
        stack.enter_context(default_dtype(DTYPES[task.training.precision]))
        if plan.zero_stage == 3:
            # transformers builds it so, too: no rank ever holds all of it.
            stack.enter_context(deepspeed.zero.Init(config_dict_or_path=config, mpu=mpu))
        stack.enter_context(torch.device(DEVICE))
        module = build_model(spec)
    keep_in_place(module)
    parameters = [p for p in module.parameters() if p.requires_grad]
    engine, *_ = deepspeed.initialize(
        model=module,
        model_parameters=moe_groups(parameters),
        optimizer=_optimizer(config, moe_groups(parameters)),
        config=config,
        mpu=mpu,
    )
    check = getattr(engine, "first_dataloader_check", None)
    if check is not None:
        check.remove()  # compares the values of the first batch over the TP ranks
    if plan.partition_activations or plan.cpu_checkpointing:
        deepspeed.checkpointing.configure(mpu, deepspeed_config=config)
    return PlainTrainer(engine, task)


def _pipeline(task: DryRunTask, mesh: Mesh, config: dict[str, Any]) -> PipelineTrainer:
    import deepspeed
    from deepspeed.pipe import PipelineModule
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    from trials.model.stages import pipeline_module

    plan = task.plan
    spec = Build.of_plan(task.model, task.training, plan, mesh)
    keep_in_place(PipelineModule)
    # Partitioned activations travel with their shapes as values, which nobody sends here.
    config.setdefault("pipeline", {}).update(pipe_partitioned=False, grad_partitioned=False)
    topology = PipeModelDataParallelTopology(num_pp=plan.pp, num_mp=plan.tp, num_dp=plan.dp)
    with default_dtype(DTYPES[task.training.precision]), torch.device(DEVICE):
        module = pipeline_module(spec, topology, seed=None)
    parameters = [p for p in module.parameters() if p.requires_grad]
    engine, *_ = deepspeed.initialize(
        model=module,
        model_parameters=moe_groups(parameters),
        optimizer=_optimizer(config, moe_groups(parameters)),
        config=config,
    )
    return PipelineTrainer(engine, task)
