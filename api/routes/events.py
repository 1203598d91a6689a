"""Progress of a search as server-sent events."""

import asyncio
from collections.abc import AsyncIterable
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from api.dependencies import StoreOf, plan_or_404
from api.problems import problem_responses
from api.schemas.plans import PlanResource
from api.store import PlanRecord

router = APIRouter(prefix="/plans", tags=["plans"])

POLL_SECONDS = 0.3


@router.get(
    "/{plan_id}/events",
    summary="Follow a search",
    response_class=EventSourceResponse,
    responses=problem_responses(401, 404),
)
async def plan_events(
    # A dependency, since an error inside the generator would come after the 200.
    plan: Annotated[PlanRecord, Depends(plan_or_404)],
    store: StoreOf,
) -> AsyncIterable[ServerSentEvent]:
    """`progress` whenever status or progress changes, `end` with the last state."""
    seen = None
    while True:
        current = await run_in_threadpool(store.plan, plan.id)
        assert current is not None
        state = (current.status, current.progress)
        if state != seen:
            seen = state
            event = "end" if current.done else "progress"
            yield ServerSentEvent(data=PlanResource.of(current), event=event)
        if current.done:
            return
        await asyncio.sleep(POLL_SECONDS)
