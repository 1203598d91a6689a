"""What goes into the store and comes out of it: plain values, no database objects."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]

OPEN: tuple[Status, ...] = ("queued", "running")
"""Statuses that can still change."""


@dataclass(frozen=True)
class JobRecord:
    """Something that a job works on."""

    id: str
    status: Status
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
class PlanRecord(JobRecord):
    """One request for plans."""

    request: dict[str, Any]
    summary: dict[str, Any]
    progress: dict[str, Any] | None
    calibration: dict[str, Any] | None


@dataclass(frozen=True)
class DryRunRecord(JobRecord):
    """One dry run."""

    plan_request_id: str
    rank: int
    options: dict[str, Any]


@dataclass(frozen=True)
class CampaignRecord(JobRecord):
    """One campaign."""

    plan_request_id: str
    executor: str
    settings: dict[str, Any]
    known: dict[str, Any] | None


@dataclass(frozen=True)
class TrialRecord(JobRecord):
    """One trial."""

    plan_request_id: str
    campaign_id: str | None
    rank: int | None
    executor: str
    state: str | None
    trial: dict[str, Any]
    predicted: dict[str, Any] | None
    logs: str | None


@dataclass(frozen=True)
class CalibrationRecord:
    """What trials have taught about one kind of cluster."""

    key: str
    calibration: dict[str, Any]
    trials: int
    updated_at: datetime


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
