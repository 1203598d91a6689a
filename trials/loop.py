"""The training loop of one rank: steps, what they measure, and what changes on the way."""

import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from trials.outcome import Outcome
from trials.result import Adaptation, ExpertLoad, MicroBatchMeasurement, StepMeasurement
from trials.trial_file import TrialFile


class Loop:
    """All optimizer steps of a trial on this rank."""

    def __init__(
        self,
        trial: TrialFile,
        trainer: Any,
        device: Any,
        on_step: Callable[[StepMeasurement], None] | None = None,
    ):
        self.trial, self.trainer, self.device = trial, trainer, device
        self._told = on_step or (lambda _: None)
        self.measured: list[StepMeasurement] = []
        self._bonus = _watch_routers(trial, trainer)
        self._hooks = _adaptive(trial, trainer)
        self._too_large: list[tuple[int, int]] = []

    def run(self, clock: Any) -> Outcome:
        """All steps; stops early where the trial is clearly slower than it may be."""
        for number in range(self.trial.warmup_steps + self.trial.steps):
            self.measured.append(self._step(number, clock))
            self._told(self.measured[-1])
            warm = number >= self.trial.warmup_steps
            if warm and self._hooks is not None:
                self._adapt(self.measured[-1])
            if warm and self._too_slow():
                return Outcome(kind="pruned", message="slower than the limit")
        # The pipeline engine tells the loss of the last stage to all of them.
        if not all(math.isfinite(s.loss) for s in self.measured):
            return Outcome(kind="not_a_number", message="the loss left the numbers", phase="step")
        return Outcome(kind="ok")

    def _step(self, number: int, clock: Any) -> StepMeasurement:
        """One optimizer step, repeated in a smaller micro-batch where it ran out of memory."""
        if self._hooks is None:
            return self._measure(number, clock)
        from trials.microbatch.memory import MicroBatchTooLarge

        while True:
            try:
                return self._measure(number, clock)
            except MicroBatchTooLarge:
                self._too_large.append(self._hooks.adaptive.before_step())
                self._forget_pass()
            self._hooks.give_up_step()

    def one_more(self) -> None:
        """A step like the last one, which nobody measures here."""
        self.trainer.train_step(self._batches(len(self.measured), self._trial_now()), self._sync())

    def _batches(self, number: int, trial: TrialFile) -> Any:
        from trials.data import micro_batches

        mesh, plan = self.trainer.mesh, trial.plan
        return micro_batches(
            trial,
            number,
            dp_rank=mesh.dp.rank,
            part=mesh.cp.rank * plan.sp + mesh.sp.rank,
            parts=plan.sp * plan.cp,
            device=self.device,
        )

    def _measure(self, number: int, clock: Any) -> StepMeasurement:
        trial = self._trial_now()
        plan = trial.plan
        batches = self._batches(number, trial)
        clock.take()
        sync = self._sync()
        sync()
        began = time.perf_counter()
        parts = self.trainer.train_step(batches, sync)
        seconds = time.perf_counter() - began
        spent, moved = clock.take()
        norm = self.trainer.engine.get_global_grad_norm()
        return StepMeasurement(
            seconds=seconds,
            forward=parts.forward,
            backward=parts.backward,
            step=parts.step,
            communication=spent,
            traffic_bytes=moved,
            loss=parts.loss,
            grad_norm=None if norm is None else float(norm),
            tokens=sum(ids.numel() for ids, _ in batches),
            micro_batch=plan.micro_batch,
            experts=self._expert_load(),
        )

    def _trial_now(self) -> TrialFile:
        """The trial with the micro-batch of the coming step."""
        if self._hooks is None:
            return self.trial
        micro, accum = self._hooks.adaptive.before_step()
        plan = self.trial.plan.model_copy(update={"micro_batch": micro, "grad_accum": accum})
        return self.trial.model_copy(update={"plan": plan})

    def _adapt(self, step: StepMeasurement) -> None:
        from trials.microbatch import StepReport

        waited = sum(step.communication.values())
        self._hooks.after_step(StepReport(communication_s=waited, seconds=step.seconds))

    def _expert_load(self) -> ExpertLoad | None:
        if self._bonus is None:
            return None
        from trials.entropy.load import mean_load

        return mean_load(list(self._bonus.take_load().values()))

    def _forget_pass(self) -> None:
        if self._bonus is not None:
            self._bonus.forget()

    def adaptation(self) -> Adaptation | None:
        """What came of the adaptive micro-batch; None where the trial has none."""
        if self._hooks is None:
            return None
        adaptive, pp = self._hooks.adaptive, self.trial.plan.pp
        steps = self.measured[self.trial.warmup_steps :]
        tried: dict[int, int] = {}
        for step in steps:
            tried.setdefault(step.micro_batch, self._accum_of(step))
        for micro, accum in self._too_large:
            tried.setdefault(micro, accum)
        sizes = []
        for micro, accum in tried.items():
            mine = [s for s in steps if s.micro_batch == micro]
            seconds = median(s.seconds for s in mine) if mine else None
            sizes.append(
                MicroBatchMeasurement(
                    micro_batch=micro,
                    grad_accum=accum,
                    steps=len(mine),
                    seconds=seconds,
                    sequences_per_s=micro * accum / seconds if seconds else None,
                    utilisation=adaptive.saturation.utilisation(micro),
                    bubble=(pp - 1) / (accum + pp - 1),
                    waiting=median(sum(s.communication.values()) / s.seconds for s in mine)
                    if mine
                    else None,
                )
            )
        return Adaptation(
            sizes=tuple(sizes),
            settled_on=steps[-1].micro_batch if steps else adaptive.micro_batch,
            settled=adaptive.settled,
        )

    def _accum_of(self, step: StepMeasurement) -> int:
        length = self.trial.training.seq_len // (self.trial.plan.sp * self.trial.plan.cp)
        return step.tokens // (length * step.micro_batch)

    def _sync(self) -> Callable[[], None]:
        import torch

        if self.device.type == "cuda":
            return lambda: torch.cuda.synchronize(self.device)
        return lambda: None

    def _too_slow(self) -> bool:
        """Every rank comes to the same answer: the slowest rank's median decides."""
        import torch
        import torch.distributed as dist

        if self.trial.step_limit_s is None:
            return False
        seen = sorted(s.seconds for s in self.measured[self.trial.warmup_steps :])
        slowest = torch.tensor(seen[len(seen) // 2], device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return len(seen) > 1 and float(slowest) > self.trial.step_limit_s


def _watch_routers(trial: TrialFile, trainer: Any) -> Any:
    """The bonus on the model's routers, which adds to each micro-batch's loss."""
    options = trial.router_bonus
    if options is None:
        return None
    from trials.entropy.bonus import RouterEntropy

    group = trainer.mesh.dp.group if options.all_ranks else None
    bonus = RouterEntropy(options.weight, options.over, group=group)
    bonus.attach(trainer.engine.module)
    trainer.extra_loss = lambda module: bonus.take_loss() if options.weight else None
    return bonus


def _adaptive(trial: TrialFile, trainer: Any) -> Any:
    """The hooks of the adaptive micro-batch on the trial's engine."""
    options = trial.adapt_micro_batch
    if options is None:
        return None
    from trials.microbatch import AdaptiveMicroBatch, EngineMicroBatch

    plan = trial.plan
    adaptive = AdaptiveMicroBatch(
        samples_per_rank=plan.micro_batch * plan.grad_accum,
        micro_batch=plan.micro_batch,
        limits=options,
        keep=options.keep,
    )
    hooks = EngineMicroBatch(trainer.engine, adaptive)
    if hasattr(trainer, "guard"):
        trainer.guard = hooks.part
    return hooks
