"""The adaptive micro-batch on a live DeepSpeed engine, the same on all ranks."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from trials.microbatch.law import AdaptiveMicroBatch, StepReport
from trials.microbatch.memory import MicroBatchTooLarge, discard_step, together

T = TypeVar("T")

Batch = tuple[Tensor, ...]
"""What a forward pass takes; the first dimension of each tensor is sequences."""


class EngineMicroBatch:
    """Two hooks around an optimizer step, `before_step` and `after_step`, or the step itself.

    group: ranks that must agree, by default all. Every rank must call the hooks alike.
    """

    def __init__(
        self,
        engine: Any,
        adaptive: AdaptiveMicroBatch,
        *,
        group: dist.ProcessGroup | None = None,
    ):
        micro, accum = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
        if (micro, accum) != adaptive.before_step():
            raise ValueError(
                f"the engine has micro-batch {micro} x {accum}, "
                f"the adaptive one {adaptive.micro_batch} x {adaptive.grad_accum}"
            )
        self.engine, self.adaptive, self.group = engine, adaptive, group
        self._factor = engine.train_batch_size() // (micro * accum)
        """Ranks that the engine multiplies by: its data-parallel ones, with AutoTP all."""

    def before_step(self, batch: Batch) -> list[Batch]:
        """The micro-batches of this rank's sequences, all of one size."""
        micro, accum = self.adaptive.before_step()
        count = batch[0].shape[0]
        if count != micro * accum:
            raise ValueError(f"{count} sequences were given; a step takes {micro} x {accum}")
        return list(zip(*(t.split(micro) for t in batch), strict=True))

    def after_step(self, report: StepReport) -> bool:
        """Agrees with the other ranks, decides, and tells the engine; True where it changes.

        The slowest rank counts: the longest wait, the highest utilisation, any failure.
        """
        if self.adaptive.after_step(self._agreed(report)):
            set_engine_batch(self.engine, *self.adaptive.before_step(), self._factor)
            return True
        return False

    def train_step(
        self,
        batch: Batch,
        forward: Callable[..., Tensor] | None = None,
        report: Callable[[], StepReport] | None = None,
    ) -> float:
        """One optimizer step in as many tries as memory needs; returns the mean loss.

        forward: the loss of a micro-batch, by default the engine's own. report: what is known of
        the step beside its seconds. Raises MicroBatchTooLarge where the smallest size is too
        large, and where a size fails that went well before on several ranks: they cannot agree
        without waiting for each other in every micro-batch.
        """
        while True:
            began = time.perf_counter()
            try:
                loss = self._try(self.before_step(batch), forward or self.engine)
            except MicroBatchTooLarge:
                self.give_up_step()
                continue
            seen = report() if report else StepReport()
            seen.seconds = seen.seconds or time.perf_counter() - began
            self.after_step(seen)
            return loss

    def give_up_step(self) -> None:
        """After MicroBatchTooLarge, on all ranks: forgets the step and takes the smaller size.

        Raises the MicroBatchTooLarge that is being handled where there is no smaller size.
        """
        discard_step(self.engine)
        align_boundary(self.engine)
        if not self.adaptive.after_step(StepReport(out_of_memory=True)):
            raise MicroBatchTooLarge(f"micro-batch {self.adaptive.micro_batch} is too large")
        set_engine_batch(self.engine, *self.adaptive.before_step(), self._factor)

    def agree(self, failed: bool) -> bool:
        """Whether any rank failed."""
        if not self._distributed:
            return failed
        flag = torch.tensor(float(failed), device=self.engine.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.group)
        return bool(flag.item())

    @property
    def _distributed(self) -> bool:
        return dist.is_initialized() and dist.get_world_size(self.group) > 1

    def part(self, run: Callable[[], T]) -> T:
        """Runs the forward or the backward pass of a micro-batch; all ranks call it alike.

        Raises MicroBatchTooLarge on all where any ran out of memory, as long as they agree: in
        steps of a size that was not proven yet.
        """
        if not self._distributed:
            return together(run, None)
        return together(run, self.agree) if self.adaptive.unproven else run()

    def _try(self, parts: list[Batch], forward: Callable[..., Tensor]) -> float:
        total = 0.0
        for part in parts:
            loss = self.part(partial(forward, *part))
            self.part(partial(self.engine.backward, loss))
            self.engine.step()
            total += float(loss.detach()) / len(parts)
        return total

    def _agreed(self, report: StepReport) -> StepReport:
        if not self._distributed:
            return report
        unknown = -1.0
        told = torch.tensor(
            [
                unknown if report.utilisation is None else report.utilisation,
                report.communication_s,
                float(report.out_of_memory),
                unknown if report.seconds is None else report.seconds,
            ],
            dtype=torch.float64,
            device=self.engine.device,
        )
        dist.all_reduce(told, op=dist.ReduceOp.MAX, group=self.group)
        utilisation, waited, failed, seconds = told.tolist()
        return StepReport(
            utilisation=None if utilisation < 0 else utilisation,
            communication_s=waited,
            out_of_memory=failed > 0,
            seconds=None if seconds < 0 else seconds,
        )


def set_engine_batch(engine: Any, micro_batch: int, grad_accum: int, ranks: int) -> None:
    """Tells a DeepSpeed engine between two optimizer steps.

    ranks: what the engine multiplies by, so that its triple stays consistent.
    """
    config = engine._config
    config.train_micro_batch_size_per_gpu = micro_batch
    config.gradient_accumulation_steps = grad_accum
    config.train_batch_size = micro_batch * grad_accum * ranks
    if hasattr(engine.optimizer, "gradient_accumulation_steps"):
        engine.optimizer.gradient_accumulation_steps = grad_accum
    if hasattr(engine, "num_stages"):
        engine.micro_batch_size, engine.micro_batches = micro_batch, grad_accum
        engine.reset_activation_shape()
    align_boundary(engine)


def align_boundary(engine: Any) -> None:
    """Puts the count of micro-batches on a multiple of the accumulation.

    The engine steps where that count is a multiple (runtime/engine.py,
    is_gradient_accumulation_boundary): after 45 micro-batches in threes, accumulation by two would
    step after the first.
    """
    engine.micro_steps -= engine.micro_steps % engine.gradient_accumulation_steps()
