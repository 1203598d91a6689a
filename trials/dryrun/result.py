"""What goes into a dry run and what comes out; no torch here."""

from typing import Any, Literal

from pydantic import Field

from cost_model.plans import Plan
from cost_model.specs import ModelSpec, TrainingSpec
from cost_model.specs.frozen import Frozen

GIB = 2**30


class DryRunTask(Frozen):
    """One rank to run, as the child process reads it."""

    model: ModelSpec
    training: TrainingSpec
    plan: Plan
    ds_config: dict[str, Any]
    rank: int = Field(ge=0)
    gpu_bytes: int = Field(gt=0)


class Moment(Frozen):
    """What was alive at the peak of one phase, in bytes."""

    phase: str
    """init, forward, backward, step or between."""
    micro_batch: Literal["first", "last", "none"]
    """Which micro-batch of the optimizer step."""
    step: int
    """0 is the first optimizer step, in which optimizers allocate; 1 is every later one."""
    total_bytes: int
    categories: dict[str, int]


class RankResult(Frozen):
    """The dry run of one rank."""

    rank: int
    stage: int
    """Pipeline stage of the rank."""
    gpu: tuple[Moment, ...]
    host: tuple[Moment, ...]
    steady_bytes: int
    """GPU bytes between two steps."""
    steady_categories: dict[str, int]
    parameters: int
    """Parameters that this rank trains, before ZeRO partitions them."""
    seconds: float

    @property
    def peak(self) -> Moment:
        """The moment with the most GPU bytes."""
        return max(self.gpu, key=lambda m: m.total_bytes)

    def phase_peak(self, *phases: str) -> int:
        """Most GPU bytes over the named phases; 0 where none was seen."""
        return max((m.total_bytes for m in self.gpu if m.phase in phases), default=0)


class DryRunFailure(Exception):  # noqa: N818
    """A dry run without a result: refused by the engine, not buildable here, or out of time."""

    def __init__(
        self,
        kind: Literal["refused", "unsupported", "timeout", "crashed", "cancelled"],
        message: str,
    ):
        super().__init__(message)
        self.kind = kind


class DryRunResult(Frozen):
    """The dry run of a plan: the worst of the ranks that were run."""

    ranks: tuple[RankResult, ...]
    predicted: dict[str, Any] | None
    """The cost model's figures for the worst rank, in the same terms."""
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> RankResult:
        """The rank with the highest peak."""
        return max(self.ranks, key=lambda r: r.peak.total_bytes)

    def to_json(self) -> dict[str, Any]:
        """GiB at the edge; `stages` has every rank that was run.

        `total_gib` is the peak and, from the cost model, what a dry run does not see.
        """
        worst = self.worst
        peak = worst.peak.total_bytes / GIB
        unseen = {} if self.predicted is None else self.predicted["not_in_dry_run_gib"]
        return {
            "peak_allocated_gib": peak,
            "peak_phase": worst.peak.phase,
            "peak_stage": worst.stage,
            "not_seen_gib": unseen,
            "total_gib": peak + sum(unseen.values()),
            "steady_gib": worst.steady_bytes / GIB,
            "phases": phases_gib(worst),
            "categories": {k: v / GIB for k, v in sorted(worst.peak.categories.items()) if v},
            "host_gib_per_rank": max((m.total_bytes for m in worst.host), default=0) / GIB,
            "timeline": [_moment_json(m) for m in worst.gpu],
            "stages": [
                {
                    "stage": r.stage,
                    "rank": r.rank,
                    "peak_allocated_gib": r.peak.total_bytes / GIB,
                    "parameters": r.parameters,
                }
                for r in self.ranks
            ],
            "predicted": self.predicted,
            "notes": list(self.notes),
            "seconds": self.seconds,
        }


def phases_gib(rank: RankResult) -> dict[str, float]:
    """Peaks by the cost model's phases."""
    return {
        "init": rank.phase_peak("init") / GIB,
        "forward_backward": rank.phase_peak("forward", "backward") / GIB,
        "step": rank.phase_peak("step") / GIB,
    }


def _moment_json(moment: Moment) -> dict[str, Any]:
    return {
        "phase": moment.phase,
        "micro_batch": moment.micro_batch,
        "step": moment.step,
        "allocated_gib": moment.total_bytes / GIB,
        "categories": {k: v / GIB for k, v in sorted(moment.categories.items()) if v},
    }
