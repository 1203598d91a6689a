"""The tables. Their names begin with mw_, since the job engine's tables share the database."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from api.store.columns import Json, UtcDateTime


class Base(DeclarativeBase):
    """Names every constraint, so that migrations can drop it on both databases."""

    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
        }
    )


class JobRow(Base):
    """Something that a job works on: queued, running, and one of three ends."""

    __abstract__ = True

    id: Mapped[str] = mapped_column(sa.String(100), primary_key=True)
    """Ids sort by time, so that pages by id are pages by time."""
    status: Mapped[str] = mapped_column(sa.String(16), index=True)
    result: Mapped[dict[str, Any] | None] = mapped_column(Json)
    error: Mapped[dict[str, Any] | None] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class PlanRequestRow(JobRow):
    """One request for plans, and how far its search is."""

    __tablename__ = "mw_plan_requests"

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    request: Mapped[dict[str, Any]] = mapped_column(Json)
    summary: Mapped[dict[str, Any]] = mapped_column(Json)
    """What the request resolved to, in short."""
    progress: Mapped[dict[str, Any] | None] = mapped_column(Json)
    calibration: Mapped[dict[str, Any] | None] = mapped_column(Json)
    """What trials on this cluster had taught when the request came; the search uses it."""


class CandidateRow(Base):
    """One plan that a search kept."""

    __tablename__ = "mw_candidates"
    __table_args__ = (sa.UniqueConstraint("plan_request_id", "rank"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    plan_request_id: Mapped[str] = mapped_column(
        sa.ForeignKey("mw_plan_requests.id", ondelete="CASCADE")
    )
    rank: Mapped[int]
    """1 is the best."""
    plan: Mapped[dict[str, Any]] = mapped_column(Json)
    prediction: Mapped["PredictionRow"] = relationship(lazy="raise", cascade="all, delete-orphan")


class PredictionRow(Base):
    """What the cost model said of a candidate. The columns are those that lists sort by."""

    __tablename__ = "mw_predictions"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    candidate_id: Mapped[int] = mapped_column(
        sa.ForeignKey("mw_candidates.id", ondelete="CASCADE"), unique=True
    )
    gpus: Mapped[int]
    step_seconds: Mapped[float]
    tokens_per_s: Mapped[float]
    mfu: Mapped[float]
    memory_bytes: Mapped[float]
    """Total bytes of the worst rank."""
    host_bytes: Mapped[float]
    """Bytes of one node's host."""
    fits: Mapped[bool]
    fits_probability: Mapped[float]
    days: Mapped[float | None]
    """Days for the token budget, where there is one."""
    usd: Mapped[float | None]
    """Cost of the token budget, where there is one and the price is known."""
    detail: Mapped[dict[str, Any]] = mapped_column(Json)


class DryRunRow(JobRow):
    """One dry run of a candidate."""

    __tablename__ = "mw_dry_runs"

    plan_request_id: Mapped[str] = mapped_column(
        sa.ForeignKey("mw_plan_requests.id", ondelete="CASCADE"), index=True
    )
    rank: Mapped[int]
    """Of the candidate."""
    options: Mapped[dict[str, Any]] = mapped_column(Json)
    """Pipeline stages to run, and the time limit."""


class CampaignRow(JobRow):
    """One campaign: trials of several plans, from which the ranking is learned anew."""

    __tablename__ = "mw_campaigns"

    plan_request_id: Mapped[str] = mapped_column(
        sa.ForeignKey("mw_plan_requests.id", ondelete="CASCADE"), index=True
    )
    executor: Mapped[str] = mapped_column(sa.String(32))
    settings: Mapped[dict[str, Any]] = mapped_column(Json)
    known: Mapped[dict[str, Any] | None] = mapped_column(Json)
    """The calibration that it begins with. `result` is what it knows now, while it runs as well."""


class TrialRow(JobRow):
    """One trial: a plan on real devices."""

    __tablename__ = "mw_trials"

    plan_request_id: Mapped[str] = mapped_column(
        sa.ForeignKey("mw_plan_requests.id", ondelete="CASCADE"), index=True
    )
    campaign_id: Mapped[str | None] = mapped_column(
        sa.ForeignKey("mw_campaigns.id", ondelete="CASCADE"), index=True
    )
    rank: Mapped[int | None]
    """Of the candidate; a campaign's plan may be none."""
    executor: Mapped[str] = mapped_column(sa.String(32))
    state: Mapped[str | None] = mapped_column(sa.String(16))
    """Where the executor last had it."""
    trial: Mapped[dict[str, Any]] = mapped_column(Json)
    """The trial file, whole."""
    predicted: Mapped[dict[str, Any] | None] = mapped_column(Json)
    """What the cost model had said: seconds and bytes."""
    logs: Mapped[str | None] = mapped_column(sa.Text)
    """The end of what its ranks printed."""


class CalibrationRow(Base):
    """What trials have taught about one kind of cluster."""

    __tablename__ = "mw_calibrations"

    key: Mapped[str] = mapped_column(sa.String(200), primary_key=True)
    """The kind: GPU, links and software, not the number of nodes."""
    calibration: Mapped[dict[str, Any]] = mapped_column(Json)
    trials: Mapped[int]
    """Trials that it was fitted to."""
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class IdempotencyRow(Base):
    """Which resource an Idempotency-Key made."""

    __tablename__ = "mw_idempotency_keys"

    route: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    body_sha256: Mapped[str] = mapped_column(sa.String(64))
    resource_id: Mapped[str] = mapped_column(sa.String(36))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class WorkerRow(Base):
    """A process that runs jobs, and when it was last seen."""

    __tablename__ = "mw_workers"

    id: Mapped[str] = mapped_column(sa.String(128), primary_key=True)
    """Its executor id in the job engine."""
    machine: Mapped[str] = mapped_column(sa.String(128))
    """Which machine's process table `pid` counts in."""
    pid: Mapped[int]
    seen: Mapped[float]
    """Seconds since 1970, by the database's clock."""
    dead: Mapped[bool] = mapped_column(default=False)
    """Its jobs were taken over."""
