"""What goes into the store and comes out of it: plain values, no database objects."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

PlanStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]

OPEN: tuple[PlanStatus, ...] = ("queued", "running")
"""Statuses that can still change."""


@dataclass(frozen=True)
class PlanRecord:
    """One request for plans."""

    id: str
    status: PlanStatus
    request: dict[str, Any]
    summary: dict[str, Any]
    progress: dict[str, Any] | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def done(self) -> bool:
        """Whether the status is final."""
        return self.status not in OPEN


@dataclass(frozen=True)
class PredictionRecord:
    """What lists sort and filter by; `detail` is all the rest."""

    gpus: int
    step_seconds: float
    tokens_per_s: float
    mfu: float
    memory_bytes: float
    host_bytes: float
    fits: bool
    fits_probability: float
    days: float | None
    usd: float | None
    detail: dict[str, Any]


@dataclass(frozen=True)
class NewCandidate:
    """A candidate to be kept."""

    rank: int
    plan: dict[str, Any]
    prediction: PredictionRecord


@dataclass(frozen=True)
class CandidateRecord(NewCandidate):
    """A candidate that is kept."""

    plan_request_id: str
