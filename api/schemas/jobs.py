"""What all resources have that a job works on."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from api.store import Status
from api.store.records import JobRecord


class Failure(BaseModel):
    """Why a job failed."""

    title: str
    detail: str
    kind: str | None = None
    errors: list[dict[str, Any]] | None = None


class JobResource(BaseModel):
    """Something that a job works on."""

    id: str
    status: Status
    """queued, running, succeeded, failed or cancelled."""
    error: Failure | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def job_fields(record: JobRecord) -> dict[str, Any]:
    """The fields of JobResource."""
    return {
        "id": record.id,
        "status": record.status,
        "error": None if record.error is None else Failure(**record.error),
        "created_at": record.created_at,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
    }
