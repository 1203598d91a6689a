"""Adapts the micro-batch while training goes on: the same engine, no restart.

For one's own loop, two hooks: `before_step` says how many sequences and micro-batches to feed,
`after_step` is told how the step went.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limits:
    """When to grow and when to shrink."""

    smallest: int = 1
    largest: int = 8
    low_utilisation: float = 0.60
    """Below this share of the attainable throughput there is room to grow."""
    patience: int = 5
    """Steps in a row that must be below before the micro-batch grows."""
    slow_communication_s: float = 0.100
    """Waiting for communication longer than this in a step shrinks the micro-batch."""


@dataclass
class StepReport:
    """What happened in a step."""

    utilisation: float
    """Achieved over attainable, 0 to 1."""
    communication_s: float = 0.0
    out_of_memory: bool = False


@dataclass
class AdaptiveMicroBatch:
    """Grows by one step of the ladder, shrinks by one, and settles.

    samples_per_rank: sequences of a rank and optimizer step; it never changes, so only its
    divisors are tried and the global batch stays what the run asked for.
    """

    samples_per_rank: int
    micro_batch: int = 1
    limits: Limits = field(default_factory=Limits)
    history: list[int] = field(default_factory=list)
    _low: int = 0
    _ceiling: int | None = None
    """Smallest micro-batch that went wrong; never tried again."""

    def __post_init__(self) -> None:
        if self.micro_batch not in self.ladder:
            raise ValueError(f"micro_batch {self.micro_batch} must be one of {self.ladder}")

    @property
    def ladder(self) -> list[int]:
        """The micro-batches that divide a rank's samples, within bounds."""
        low, high = self.limits.smallest, self.limits.largest
        return [m for m in range(low, high + 1) if self.samples_per_rank % m == 0]

    @property
    def grad_accum(self) -> int:
        """Micro-batches of a step that keep the batch triple consistent."""
        return self.samples_per_rank // self.micro_batch

    def before_step(self) -> tuple[int, int]:
        """(micro_batch, grad_accum) of the coming step."""
        self.history.append(self.micro_batch)
        return self.micro_batch, self.grad_accum

    def after_step(self, report: StepReport) -> bool:
        """Learns from a step; returns whether the micro-batch changes."""
        if report.out_of_memory or report.communication_s > self.limits.slow_communication_s:
            self._ceiling = self.micro_batch
            self._low = 0
            return self._move(-1)
        self._low = self._low + 1 if report.utilisation < self.limits.low_utilisation else 0
        if self._low < self.limits.patience:
            return False
        self._low = 0
        return self._move(+1)

    @property
    def settled(self) -> bool:
        """Whether it can grow no further."""
        above = [m for m in self.ladder if m > self.micro_batch]
        return not above or (self._ceiling is not None and above[0] >= self._ceiling)

    def _move(self, by: int) -> bool:
        place = self.ladder.index(self.micro_batch) + by
        if not 0 <= place < len(self.ladder) or (by > 0 and self.settled):
            return False
        self.micro_batch = self.ladder[place]
        return True


def set_engine_batch(engine: Any, micro_batch: int, grad_accum: int, dp: int) -> None:
    """Tells a DeepSpeed engine between two optimizer steps; the global batch must be unchanged."""
    total = micro_batch * grad_accum * dp
    if total != engine.train_batch_size():
        raise ValueError(
            f"{micro_batch} x {grad_accum} x {dp} = {total} sequences, "
            f"the engine has {engine.train_batch_size()}"
        )
    engine.set_train_micro_batch_size(micro_batch)
    engine._config.gradient_accumulation_steps = grad_accum
    optimizer = engine.optimizer
    if hasattr(optimizer, "gradient_accumulation_steps"):
        optimizer.gradient_accumulation_steps = grad_accum
