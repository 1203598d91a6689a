"""Whether the service is ready."""

from typing import Literal

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError

from api.dependencies import JobsOf
from api.problems import problem_responses

router = APIRouter(tags=["service"])


class Health(BaseModel):
    """The service is ready."""

    status: Literal["ready"]
    database: Literal["sqlite", "postgresql"]
    version: str


@router.get("/healthz", responses=problem_responses(503))
def healthz(jobs: JobsOf) -> Health:
    """200 once the database answers, its schema is there and jobs run; 503 until then."""
    from api.app import VERSION

    try:
        ready = jobs.healthy()
    except SQLAlchemyError as error:
        raise HTTPException(503, f"the database does not answer: {type(error).__name__}") from error
    if not ready:
        raise HTTPException(503, "jobs do not run yet")
    dialect = jobs.store.engine.dialect.name
    return Health(
        status="ready",
        database="sqlite" if dialect == "sqlite" else "postgresql",
        version=VERSION,
    )
