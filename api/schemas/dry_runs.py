"""Dry runs as the routes show them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.jobs import JobResource, job_fields
from api.store import DryRunRecord


class DryRunRequest(BaseModel):
    """How to run it. An empty body will do."""

    model_config = ConfigDict(extra="forbid")

    stages: list[int] | None = Field(None, min_length=1, max_length=64)
    """Pipeline stages to run, from 0; by default the first and the last."""
    time_limit_s: float = Field(600, gt=0, le=3600)
    """Seconds for all stages together."""


class DryRunLinks(BaseModel):
    """Where to go from a dry run."""

    self: str
    cancel: str
    candidate: str
    plan: str
    page: str
    """For people."""


class DryRunResource(JobResource):
    """One dry run: the exported config in the real engine, on fake tensors."""

    plan_id: str
    candidate: int
    """Its rank."""
    options: DryRunRequest
    result: dict[str, Any] | None
    """peak_allocated_gib, steady_gib, phases, categories, timeline, stages, and under `predicted`
    what the cost model says in the same terms."""
    links: DryRunLinks

    @classmethod
    def of(cls, record: DryRunRecord) -> "DryRunResource":
        """From what is stored."""
        own, plan = f"/v1/dry-runs/{record.id}", f"/v1/plans/{record.plan_request_id}"
        return cls(
            **job_fields(record),
            plan_id=record.plan_request_id,
            candidate=record.rank,
            options=DryRunRequest.model_validate(record.options),
            result=record.result,
            links=DryRunLinks(
                self=own,
                cancel=f"{own}/cancel",
                candidate=f"{plan}/candidates/{record.rank}",
                plan=plan,
                page=f"/dry-runs/{record.id}",
            ),
        )


class DryRunPage(BaseModel):
    """One page of dry runs, the newest first."""

    items: list[DryRunResource]
    next: str | None
    """Where the next page is; null on the last one."""
