"""What routes get from the application."""

from typing import Annotated, cast

from fastapi import Depends, HTTPException, Request

from api.jobs import Jobs
from api.settings import Settings
from api.store import PlanRecord, Store


def settings_of(request: Request) -> Settings:
    """The settings of this process."""
    return cast(Settings, request.app.state.settings)


def store_of(request: Request) -> Store:
    """The store."""
    return cast(Store, request.app.state.store)


def jobs_of(request: Request) -> Jobs:
    """The jobs."""
    return cast(Jobs, request.app.state.jobs)


SettingsOf = Annotated[Settings, Depends(settings_of)]
StoreOf = Annotated[Store, Depends(store_of)]
JobsOf = Annotated[Jobs, Depends(jobs_of)]


def plan_or_404(plan_id: str, store: StoreOf) -> PlanRecord:
    """The request for plans that the path names."""
    record = store.plan(plan_id)
    if record is None:
        raise HTTPException(404, f"there is no request for plans with id {plan_id}")
    return record


PlanOf = Annotated[PlanRecord, Depends(plan_or_404)]
