"""What a trial found, as the worker writes it and everybody reads it. No torch here."""

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer

from cost_model.specs.frozen import Frozen
from trials.outcome import Outcome

Measured = Annotated[
    float,
    Field(allow_inf_nan=True),
    PlainSerializer(lambda x: x if math.isfinite(x) else str(x), return_type=float | str),
]
"""A number that training may have made infinite or no number; such a one is a string in JSON."""


class ExpertLoad(Frozen):
    """How evenly the experts of a mixture were used."""

    cv: float
    """Standard deviation of the experts' routes over their mean."""
    max_over_mean: float
    """Routes of the busiest expert over the mean: what sets the step time of dropless experts."""
    dropped: float
    """Share of routes that a capacity dropped."""
    specialisation: float | None = None
    """Mutual information of a token's class and its expert over the classes' entropy; None where
    classes are not known."""


class StepMeasurement(Frozen):
    """One optimizer step of one rank, in seconds."""

    seconds: float
    forward: float
    backward: float
    step: float
    communication: dict[str, float]
    """Seconds spent waiting in collectives, by kind; they overlap the other parts."""
    traffic_bytes: dict[str, int]
    """Bytes handed to collectives, by kind."""
    loss: Measured
    grad_norm: Measured | None
    """Global norm before clipping, as the engine reports it."""
    tokens: int
    """Tokens that this rank processed."""
    micro_batch: int = 0
    experts: ExpertLoad | None = None
    """Mean over the mixture's layers, where the trial watches its routers."""


class CollectiveMeasurement(Frozen):
    """One point of the bandwidth sweep."""

    axis: str
    ranks: int
    kind: str
    n_bytes: int
    seconds: float


class KernelMeasurement(Frozen):
    """One kernel that ran alone, on every rank at the same time."""

    kind: Literal["gemm", "stream"]
    seconds: float
    m: int = 0
    n: int = 0
    k: int = 0
    n_bytes: int = 0
    """Read and written (stream)."""


class MemoryMeasurement(Frozen):
    """Bytes of one rank at the peak of one phase."""

    phase: str
    allocated: int
    reserved: int
    host: int
    """Resident set of the process."""


class MicroBatchMeasurement(Frozen):
    """All steps of one micro-batch in a trial that adapts it."""

    micro_batch: int
    grad_accum: int
    steps: int
    """Taken; none where the size did not fit."""
    seconds: float | None
    """Median of a step."""
    sequences_per_s: float | None
    """Of one data-parallel rank."""
    utilisation: float | None
    """Throughput over that of an endless micro-batch, fitted; None until two sizes were tried."""
    bubble: float
    """Share of the step in which a pipeline stage has nothing to do, by the schedule."""
    waiting: float | None
    """Share of the step inside blocking collectives, median."""


class Adaptation(Frozen):
    """What came of adapting the micro-batch."""

    sizes: tuple[MicroBatchMeasurement, ...]
    """In the order in which they were first tried."""
    settled_on: int
    """The micro-batch of the last step."""
    settled: bool
    """Whether it would have stayed."""

    def won(self, name: str) -> float | None:
        """Of the size settled on over the first: `utilisation`, `bubble`, `waiting`, a speed-up."""
        first = self.sizes[0]
        last = next(s for s in self.sizes if s.micro_batch == self.settled_on)
        if name == "speed":
            fast, slow = last.sequences_per_s, first.sequences_per_s
            return None if fast is None or not slow else fast / slow
        before, after = getattr(first, name), getattr(last, name)
        return None if before is None or after is None else after - before


class RankReport(Frozen):
    """What one rank measured."""

    rank: int
    host: str
    device: str
    outcome: Outcome
    parameters: int = 0
    warmup: tuple[StepMeasurement, ...] = ()
    steps: tuple[StepMeasurement, ...] = ()
    memory: tuple[MemoryMeasurement, ...] = ()
    collectives: tuple[CollectiveMeasurement, ...] = ()
    kernels: tuple[KernelMeasurement, ...] = ()
    exposed: dict[str, float] | None = None
    """Seconds of a step in which nothing but communication ran, by kind, as a GPU's profiler saw
    it in a step after the measured ones; None on a CPU, where `communication` says it."""
    startup: dict[str, float] = Field(default_factory=dict)
    """Seconds of import, process group, model, engine."""
    notes: tuple[str, ...] = ()
    adapted: Adaptation | None = None
    """Where the trial adapted its micro-batch; the same on all ranks but for `waiting`."""


class Performance(Frozen):
    """What a trial reached in its median step."""

    step_seconds: float
    tokens_per_s: float
    """Of all ranks."""
    flops_per_s_per_rank: float
    """Of the model, without recompute."""
    peak_flops_per_s: float | None
    """Of one rank's device; None where it is not known."""
    peak_source: str | None
    mfu: float | None


class Finding(Frozen):
    """Something in a trial that is wrong though it ran."""

    name: str
    message: str


class TrialResult(Frozen):
    """All ranks of a trial."""

    trial_id: str
    outcome: Outcome
    ranks: tuple[RankReport, ...]
    findings: tuple[Finding, ...] = ()
    wall_seconds: float = 0.0
    performance: Performance | None = None

    @property
    def step_seconds(self) -> float | None:
        """Median over steps of the slowest rank's step; None where no step was measured."""
        if not self.ranks or not all(r.steps for r in self.ranks):
            return None
        count = min(len(r.steps) for r in self.ranks)
        slowest = sorted(max(r.steps[i].seconds for r in self.ranks) for i in range(count))
        return slowest[count // 2]

    @property
    def losses(self) -> list[float]:
        """Loss of each step, warm-up included, averaged over ranks that saw a loss."""
        runs = [[s.loss for s in (*r.warmup, *r.steps)] for r in self.ranks]
        count = min((len(run) for run in runs), default=0)
        losses = []
        for i in range(count):
            seen = [run[i] for run in runs if run[i] == run[i]]
            losses.append(sum(seen) / len(seen) if seen else float("nan"))
        return losses

    @property
    def allocated_bytes(self) -> int | None:
        """Highest allocated peak over ranks and phases; None where the device does not tell."""
        return max((m.allocated for r in self.ranks for m in r.memory if m.allocated), default=None)


def rank_path(folder: Path, rank: int) -> Path:
    """Where a rank writes its report."""
    return folder / f"rank-{rank}.json"


def result_path(folder: Path) -> Path:
    """Where the result of the whole trial lies."""
    return folder / "result.json"


def read_result(folder: Path) -> TrialResult | None:
    """The result, None while there is none."""
    path = result_path(folder)
    if not path.exists():
        return None
    return TrialResult.model_validate_json(path.read_text("utf-8"))
