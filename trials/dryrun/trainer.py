"""The training loop of a dry run, cut into phases."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from trials.dryrun.device import NAME
from trials.dryrun.engine import keep_in_place
from trials.dryrun.result import DryRunTask
from trials.model import Build, build_model

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
DEVICE = f"{NAME}:0"

Phase = tuple[str, str, Callable[[], None]]
"""Its name, which micro-batch (first, last or none), and what runs in it."""


class Trainer(Protocol):
    """An engine and one optimizer step of it."""

    engine: Any

    def phases(self) -> Iterator[Phase]:
        """The phases of one optimizer step, in order; each is run before the next is asked for."""


@dataclass
class PlainTrainer:
    """The engine around a whole model: forward, backward, step."""

    engine: Any
    task: DryRunTask
    loss: Any = None

    def phases(self) -> Iterator[Phase]:
        """Of the micro-batches of a step the first and the last, which hold all there is."""
        last_only = self.task.plan.grad_accum == 1
        for micro in ("last",) if last_only else ("first", "last"):
            if not last_only:
                self.engine.set_gradient_accumulation_boundary(micro == "last")
            yield "forward", micro, self._forward
            yield "backward", micro, self._backward
            yield "step", micro, self.engine.step

    def _forward(self) -> None:
        plan, training = self.task.plan, self.task.training
        shape = (plan.micro_batch, training.seq_len // (plan.sp * plan.cp))
        ids = torch.zeros(shape, dtype=torch.long, device=DEVICE)
        self.loss = self.engine(ids, ids)

    def _backward(self) -> None:
        loss, self.loss = self.loss, None
        self.engine.backward(loss)


def plain_trainer(task: DryRunTask) -> PlainTrainer:
    """Builds the model and the engine as a training script does."""
    import deepspeed

    module = build_whole(task)
    engine, *_ = deepspeed.initialize(
        model=module,
        model_parameters=[p for p in module.parameters() if p.requires_grad],
        config=task.ds_config,
    )
    return PlainTrainer(engine, task)


def build_whole(task: DryRunTask) -> torch.nn.Module:
    """The model on the fake GPU in the training precision; partitioned as it is made at stage 3.

    transformers builds it under zero.Init, too, so that no rank ever holds all of it.
    """
    import deepspeed

    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[task.training.precision])
    try:
        with ExitStack() as stack:
            if task.plan.zero_stage == 3:
                stack.enter_context(deepspeed.zero.Init(config_dict_or_path=task.ds_config))
            stack.enter_context(torch.device(DEVICE))
            module = build_model(Build.of_plan(task.model, task.training, task.plan))
    finally:
        torch.set_default_dtype(before)
    keep_in_place(module)
    return module
