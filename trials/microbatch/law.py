"""When a micro-batch grows, shrinks and settles. No torch here.

For one's own loop, two hooks: `before_step` says how many sequences and micro-batches to feed,
`after_step` is told how the step went.
"""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from cost_model.specs.frozen import Frozen
from trials.microbatch.saturation import Saturation


class Limits(Frozen):
    """When to grow and when to shrink."""

    smallest: int = Field(default=1, ge=1)
    largest: int = Field(default=8, ge=1)
    low_utilisation: float = Field(default=0.60, gt=0, le=1)
    """Below this share of the attainable throughput there is room to grow."""
    saturated: float = Field(default=0.90, gt=0, le=1)
    """The same where the attainable throughput is fitted from the run's own step times."""
    patience: int = Field(default=5, ge=1)
    """Steps in a row that must be below before the micro-batch grows."""
    slow_communication_s: float = Field(default=0.100, gt=0)
    """Waiting for communication longer than this in a step shrinks the micro-batch."""
    worse: float = Field(default=0.02, ge=0)
    """A size whose sequences take so much longer than the smaller size's is given up."""


@dataclass
class StepReport:
    """What happened in a step."""

    utilisation: float | None = None
    """Achieved over attainable, 0 to 1; None leaves it to the fit of step times."""
    communication_s: float = 0.0
    out_of_memory: bool = False
    seconds: float | None = None
    """Of the whole step; None where it is not known."""


@dataclass
class AdaptiveMicroBatch:
    """Grows by one, shrinks by one, and settles.

    samples_per_rank: sequences of a rank and optimizer step. keep="global_batch" never changes it,
    so only its divisors are tried and training is the same; keep="grad_accum" takes every size,
    and the global batch grows with it.
    """

    samples_per_rank: int
    micro_batch: int = 1
    limits: Limits = field(default_factory=Limits)
    keep: Literal["global_batch", "grad_accum"] = "global_batch"
    history: list[int] = field(default_factory=list)
    saturation: Saturation = field(default_factory=Saturation)
    _low: int = 0
    _ceiling: int | None = None
    """Smallest micro-batch that went wrong; never tried again."""

    def __post_init__(self) -> None:
        if self.limits.smallest > self.limits.largest:
            raise ValueError("limits.smallest must be at most limits.largest")
        if self.samples_per_rank % self.micro_batch:
            raise ValueError(f"micro_batch {self.micro_batch} must divide {self.samples_per_rank}")
        self._accum = self.samples_per_rank // self.micro_batch
        if self.micro_batch not in self.ladder:
            raise ValueError(f"micro_batch {self.micro_batch} must be one of {self.ladder}")

    @property
    def ladder(self) -> list[int]:
        """The micro-batches that may be used, within bounds."""
        low, high = self.limits.smallest, self.limits.largest
        sizes = range(low, high + 1)
        if self.keep == "grad_accum":
            return list(sizes)
        return [m for m in sizes if self.samples_per_rank % m == 0]

    @property
    def grad_accum(self) -> int:
        """Micro-batches of a step that keep the batch triple consistent."""
        if self.keep == "grad_accum":
            return self._accum
        return self.samples_per_rank // self.micro_batch

    @property
    def unproven(self) -> bool:
        """Whether no step of this size has gone well yet."""
        return self.micro_batch not in self.history

    def before_step(self) -> tuple[int, int]:
        """(micro_batch, grad_accum) of the coming step."""
        return self.micro_batch, self.grad_accum

    def after_step(self, report: StepReport) -> bool:
        """Learns from a step; returns whether the micro-batch changes.

        A step that ran out of memory was not taken: repeat it, in the smaller size.
        """
        if report.out_of_memory:
            return self._shrink()
        self.history.append(self.micro_batch)
        if report.seconds is not None:
            sequences = self.micro_batch * self.grad_accum
            self.saturation.add(self.micro_batch, report.seconds, sequences)
        if report.communication_s > self.limits.slow_communication_s:
            return self._shrink()
        self._low = self._low + 1 if self._has_room(report) else 0
        seen = self.history[-self.limits.patience :]
        if seen == [self.micro_batch] * self.limits.patience and self._slower_than_below():
            return self._shrink()
        if self._low < self.limits.patience:
            return False
        self._low = 0
        return self._grow()

    @property
    def settled(self) -> bool:
        """Whether it can grow no further, or need not."""
        above = [m for m in self.ladder if m > self.micro_batch]
        if not above or (self._ceiling is not None and above[0] >= self._ceiling):
            return True
        fitted = self.saturation.utilisation(self.micro_batch)
        return fitted is not None and fitted >= self.limits.saturated

    def _has_room(self, report: StepReport) -> bool:
        if report.utilisation is not None:
            return report.utilisation < self.limits.low_utilisation
        fitted = self.saturation.utilisation(self.micro_batch)
        return fitted is None or fitted < self.limits.saturated

    def _slower_than_below(self) -> bool:
        place = self.ladder.index(self.micro_batch)
        here = self.saturation.typical(self.micro_batch)
        below = self.saturation.typical(self.ladder[place - 1]) if place else None
        return bool(here and below and here > below * (1 + self.limits.worse))

    def _shrink(self) -> bool:
        self._low = 0
        self._ceiling = min(self.micro_batch, self._ceiling or self.micro_batch)
        place = self.ladder.index(self.micro_batch)
        if place == 0:
            return False
        self.micro_batch = self.ladder[place - 1]
        return True

    def _grow(self) -> bool:
        above = [m for m in self.ladder if m > self.micro_batch]
        if not above or (self._ceiling is not None and above[0] >= self._ceiling):
            return False
        self.micro_batch = above[0]
        return True
