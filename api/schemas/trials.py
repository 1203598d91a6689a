"""Trials as the routes show them."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.jobs import JobResource, job_fields
from api.store import CandidateRecord, TrialRecord
from api.wording import summary
from cost_model.plans import Plan
from trials.options import AdaptMicroBatch, RouterBonus
from trials.outcome import Outcome
from trials.result import Finding, Performance, RankReport, TrialResult
from trials.step_log import RankSteps


class TrialOptions(BaseModel):
    """How long a trial runs, and on what."""

    model_config = ConfigDict(extra="forbid")

    steps: int = Field(5, ge=1, le=10_000)
    """Measured optimizer steps."""
    warmup_steps: int = Field(2, ge=0, le=1_000)
    """Steps before them."""
    timeout_s: float = Field(600, gt=0, le=86_400)
    """Seconds after which it is ended as hung."""
    step_limit_s: float | None = Field(None, gt=0, le=86_400)
    """Stops early once the median step is slower than this."""
    data: Literal["random", "bytes"] = "random"
    """Random tokens, or the bytes of the Python standard library's sources."""
    same_batch: bool = False
    """Every step sees the first batch: the loss must then fall."""
    sweep_collectives: bool = False
    """Measures the bandwidth of the plan's own groups before it trains."""
    adapt_micro_batch: AdaptMicroBatch | None = None
    """Grows or shrinks the micro-batch on the way, on the same engine, until it settles."""
    router_bonus: RouterBonus | None = None
    """Of a mixture: measures how evenly its experts are used, and adds an entropy bonus."""


class TrialsRequest(TrialOptions):
    """Which candidates to try, and where."""

    candidates: list[int] = Field(min_length=1, max_length=64)
    """Ranks in the ranking, from 1."""
    executor: str = Field("local", max_length=32)
    """One of GET /v1/executors; where it submits and with which account is the service's own."""


class TrialPrediction(BaseModel):
    """What the cost model had said of what runs."""

    seconds: float
    """Of a step."""
    seconds_low: float | None = None
    seconds_high: float | None = None
    total_bytes: float
    """On the worst rank, with what no allocator counts."""
    allocated_bytes: float | None = None

    @classmethod
    def of(cls, candidate: CandidateRecord) -> "TrialPrediction":
        """Of a candidate."""
        step, memory = candidate.prediction.detail["step"], candidate.prediction.detail["memory"]
        return cls(
            seconds=step["seconds"],
            seconds_low=step["seconds_low"],
            seconds_high=step["seconds_high"],
            total_bytes=memory["total_bytes"],
            allocated_bytes=memory["allocated_bytes"],
        )


class TrialLinks(BaseModel):
    """Where to go from a trial."""

    self: str
    cancel: str
    logs: str
    candidate: str | None
    campaign: str | None
    plan: str
    page: str
    """For people."""


class TrialItem(JobResource):
    """One line of the list of trials."""

    plan_id: str
    candidate: int | None
    """Rank of the candidate; null where a campaign tried another plan."""
    campaign_id: str | None
    executor: str
    state: str | None
    """Where the executor has it: queued, running, ended."""
    summary: str
    """The plan in one line."""
    plan: Plan
    predicted: TrialPrediction | None
    outcome: Outcome | None
    """How it ended, where there is a result; a trial that ran out of memory has one too."""
    step_seconds: float | None
    """Median over steps of the slowest rank."""
    allocated_bytes: int | None
    """Highest peak over ranks and phases; null where the device does not tell."""
    performance: Performance | None
    """Tokens a second, FLOP/s and MFU of the median step."""
    losses: list[float | None]
    """Of each step, warm-up included; null where it is no number."""
    findings: list[Finding]
    """What is wrong in a trial that ran."""
    links: TrialLinks


class TrialResource(TrialItem):
    """One trial in full."""

    options: dict[str, Any]
    """Steps, time limit, data."""
    ranks: list[RankReport]
    """Every rank, once the trial has ended: its steps in time order with their parts, loss,
    gradient norm and traffic, and its memory by phase."""
    so_far: list[RankSteps]
    """Every rank while the trial runs: its phase, how many steps it has done, and the last 200 of
    them, about a second old. Also what ranks had measured that left no report."""
    wall_seconds: float | None


class TrialPage(BaseModel):
    """One page of trials, the newest first."""

    items: list[TrialItem]
    next: str | None
    """Where the next page is; null on the last one."""


class TrialsAccepted(BaseModel):
    """The trials that a request made."""

    items: list[TrialItem]


def _result(record: TrialRecord) -> TrialResult | None:
    return None if record.result is None else TrialResult.model_validate(record.result)


def item_fields(record: TrialRecord) -> dict[str, Any]:
    """The fields of TrialItem."""
    result = _result(record)
    plan = Plan.model_validate(record.trial["plan"])
    own, parent = f"/v1/trials/{record.id}", f"/v1/plans/{record.plan_request_id}"
    campaign = record.campaign_id
    return {
        **job_fields(record),
        "plan_id": record.plan_request_id,
        "candidate": record.rank,
        "campaign_id": campaign,
        "executor": record.executor,
        "state": record.state,
        "summary": summary(plan),
        "plan": plan,
        "predicted": record.predicted,
        "outcome": None if result is None else result.outcome,
        "step_seconds": None if result is None else result.step_seconds,
        "allocated_bytes": None if result is None else result.allocated_bytes,
        "performance": None if result is None else result.performance,
        "losses": []
        if result is None
        else [x if math.isfinite(x) else None for x in result.losses],
        "findings": [] if result is None else result.findings,
        "links": TrialLinks(
            self=own,
            cancel=f"{own}/cancel",
            logs=f"{own}/logs",
            candidate=None if record.rank is None else f"{parent}/candidates/{record.rank}",
            campaign=None if campaign is None else f"/v1/campaigns/{campaign}",
            plan=parent,
            page=f"/trials/{record.id}",
        ),
    }


def trial_item(record: TrialRecord) -> TrialItem:
    """One line of what is stored."""
    return TrialItem.model_validate(item_fields(record))


def trial_resource(record: TrialRecord, so_far: Sequence[RankSteps] = ()) -> TrialResource:
    """All of what is stored. so_far: what its executor sees of it."""
    result = _result(record)
    ranks = () if result is None else result.ranks
    return TrialResource(
        **item_fields(record),
        options={name: record.trial.get(name) for name in TrialOptions.model_fields},
        ranks=list(ranks),
        so_far=[one for one in so_far if one.rank not in {r.rank for r in ranks}],
        wall_seconds=None if result is None else result.wall_seconds,
    )
