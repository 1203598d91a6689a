"""Requests for plans: post one, look at it, list them, cancel one."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from api.calibrated import key_of
from api.dependencies import JobsOf, PlanOf, StoreOf
from api.http.cancelling import cancelled
from api.http.idempotency import IdempotencyKey, conflict_as_409, once
from api.http.paging import PageQuery, page_of
from api.http.partial_plan import parsed
from api.jobs import Jobs
from api.problems import problem_responses
from api.routes.explain import explained
from api.schemas.candidates import CandidateItem
from api.schemas.plans import PlanPage, PlanResource
from api.store import PlanRecord, Store
from api.wording import summary_of
from planner.request import PlanRequest, Resolved

router = APIRouter(prefix="/plans", tags=["plans"])

EXAMPLE = {
    "model": {"preset": "llama-2-13b"},
    "cluster": {"preset": "dgx-a100-80g", "nodes": 1},
    "training": {"seq_len": 4096, "global_batch": 256},
}


Calibrated = Annotated[
    bool, Query(description="Whether to use what trials have taught about this kind of cluster.")
]


def calibration_for(store: Store, resolved: Resolved) -> dict[str, Any] | None:
    """What trials have taught about the cluster of a request."""
    key = key_of(resolved)
    record = None if key is None else store.calibrations.get(key)
    return None if record is None else record.calibration


def _resource(store: Store, record: PlanRecord) -> PlanResource:
    best = store.candidate(record.id, 1) if record.status == "succeeded" else None
    return PlanResource.of(record, None if best is None else CandidateItem.of(best))


@router.post(
    "",
    status_code=202,
    summary="Search plans for a model on a cluster",
    responses={
        202: {"headers": {"Location": {"schema": {"type": "string"}}}},
        **problem_responses(401, 409, 413, 415, 422),
    },
    openapi_extra={
        "requestBody": {
            "content": {
                "application/json": {"examples": {"shortest": {"value": EXAMPLE}}},
            }
        }
    },
)
def post_plan(
    body: PlanRequest,
    response: Response,
    store: StoreOf,
    jobs: JobsOf,
    idempotency_key: IdempotencyKey = None,
    calibrated: Calibrated = True,
) -> PlanResource:
    """Queues the search and answers at once.

    With an Idempotency-Key the same request can be sent again without a second search.
    """
    resolved = body.resolve()
    request = body.model_dump(mode="json", exclude_unset=True)
    sent = once(
        "plans", idempotency_key, request if calibrated else request | {"calibrated": False}
    )
    known = calibration_for(store, resolved) if calibrated else None
    with conflict_as_409():
        record, replayed = store.add_plan(
            request, summary_of(resolved), jobs.enqueue_plan, sent, known
        )
    if replayed:
        response.headers["Idempotency-Replayed"] = "true"
    response.headers["Location"] = f"/v1/plans/{record.id}"
    return _resource(store, record)


@router.get("", summary="List requests, the newest first", responses=problem_responses(401, 422))
def list_plans(store: StoreOf, query: Annotated[PageQuery, Query()]) -> PlanPage:
    """One page; `next` leads to the next one."""
    records, following = page_of(store.requests, "/v1/plans", query)
    return PlanPage(items=[_resource(store, r) for r in records], next=following)


@router.get(
    "/{plan_id}",
    summary="Progress and result of a request",
    responses={304: {"description": "Not modified"}, **problem_responses(401, 404, 409, 422)},
)
def get_plan(
    plan: PlanOf,
    store: StoreOf,
    explain: Annotated[
        str | None,
        Query(description="Why not this partial plan: tp=8,zero_stage=3 or a JSON object."),
    ] = None,
) -> PlanResource:
    """Status, progress, result and certificate."""
    resource = _resource(store, plan)
    if explain is None:
        return resource
    asked = explained(store, plan, parsed(explain))
    return resource.model_copy(update={"explanation": asked})


def _cancelled(plan: PlanRecord, store: Store, jobs: Jobs) -> PlanResource:
    return _resource(store, cancelled(store.requests, plan, "search", jobs.cancel_plan))


@router.post(
    "/{plan_id}/cancel",
    summary="Cancel a search",
    responses=problem_responses(401, 404, 409),
)
def cancel_plan(plan: PlanOf, store: StoreOf, jobs: JobsOf) -> PlanResource:
    """Stops the search; 409 where it is done already. Cancelling twice is fine."""
    return _cancelled(plan, store, jobs)


@router.delete(
    "/{plan_id}",
    summary="Cancel a search",
    responses=problem_responses(401, 404, 409),
)
def delete_plan(plan: PlanOf, store: StoreOf, jobs: JobsOf) -> PlanResource:
    """The same as POST .../cancel; what was found stays."""
    return _cancelled(plan, store, jobs)
