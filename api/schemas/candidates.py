"""Candidates as the routes show them."""

from pydantic import BaseModel

from api.store import CandidateRecord
from api.wording import GIB, summary
from cost_model.plans import Plan
from planner.candidate import (
    CandidateMemory,
    CandidateRun,
    CandidateStages,
    CandidateStep,
    Explanation,
)
from planner.explain import StageMemory


class CandidateLinks(BaseModel):
    """Where to go from a candidate."""

    self: str
    ds_config: str
    exports: str
    dry_run: str
    """POST there."""
    plan: str


def links(plan_id: str, rank: int) -> CandidateLinks:
    """The links of a candidate."""
    own = f"/v1/plans/{plan_id}/candidates/{rank}"
    return CandidateLinks(
        self=own,
        ds_config=f"{own}/ds_config",
        exports=f"{own}/exports",
        dry_run=f"{own}/dry-run",
        plan=f"/v1/plans/{plan_id}",
    )


class CandidateItem(BaseModel):
    """One line of the ranking. Its names are those of the filters and of sort."""

    rank: int
    """1 is the best."""
    summary: str
    """The plan in one line."""
    plan: Plan
    gpus: int
    fits: bool
    fits_probability: float
    step_seconds: float
    """Seconds per optimizer step."""
    tokens_per_s: float
    mfu: float
    """Model FLOPs, without recompute, over the peak of the GPUs used."""
    memory_gib: float
    """What the driver sees at the peak of the worst rank."""
    capacity_gib: float
    """GPU memory there is."""
    host_gib: float
    """Peak host memory of one node."""
    days: float | None
    """For the token budget, where the request has one."""
    usd: float | None
    links: CandidateLinks

    @classmethod
    def of(cls, record: CandidateRecord) -> "CandidateItem":
        """From what is stored."""
        made = record.prediction
        plan = Plan.model_validate(record.plan)
        return cls(
            rank=record.rank,
            summary=summary(plan),
            plan=plan,
            gpus=made.gpus,
            fits=made.fits,
            fits_probability=made.fits_probability,
            step_seconds=made.step_seconds,
            tokens_per_s=made.tokens_per_s,
            mfu=made.mfu,
            memory_gib=made.memory_bytes / GIB,
            capacity_gib=made.detail["memory"]["capacity_bytes"] / GIB,
            host_gib=made.host_bytes / GIB,
            days=made.days,
            usd=made.usd,
            links=links(record.plan_request_id, record.rank),
        )


class CandidatePage(BaseModel):
    """One page of the ranking."""

    items: list[CandidateItem]
    next: str | None
    """Where the next page is; null on the last one."""


class Predicted(BaseModel):
    """What the cost model says of one plan."""

    summary: str
    """The plan in one line."""
    plan: Plan
    gpus: int
    fits: bool
    fits_probability: float
    memory: CandidateMemory
    """Bytes of the worst rank by category and by phase, against what there is."""
    step: CandidateStep
    """Seconds by part, with the traffic of each rank."""
    run: CandidateRun | None
    """Steps, days, GPU-hours and cost of the token budget."""
    usd_per_step: float | None
    why: Explanation | None
    """What bounds the step and memory; in a ranking also against the best and the next plan."""
    cluster: str = ""
    """Which nodes it runs on, where the cluster has groups of different ones."""
    stages_on: tuple[CandidateStages, ...] = ()
    """The stages on each group of nodes, where they lie on different ones."""


class CandidateDetail(Predicted):
    """Everything that is known of one candidate."""

    rank: int
    stages: list[StageMemory]
    """Memory of every pipeline stage, by phase and category."""
    links: CandidateLinks
