"""Dry runs of candidates."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Response

from api.dependencies import JobsOf, PlanOf, StoreOf
from api.http.cancelling import cancelled
from api.http.idempotency import IdempotencyKey, conflict_as_409, once
from api.http.paging import JobsQuery, page_of
from api.problems import problem_responses
from api.routes.candidates import Rank, candidate_or_404
from api.schemas.dry_runs import DryRunPage, DryRunRequest, DryRunResource
from api.store import DryRunRecord, new_id
from planner.errors import Problem, RequestError
from trials.preflight import missing_libraries

router = APIRouter(tags=["dry runs"])


def dry_run_or_404(dry_run_id: str, store: StoreOf) -> DryRunRecord:
    """The dry run that the path names."""
    record = store.dry_runs.get(dry_run_id)
    if record is None:
        raise HTTPException(404, f"there is no dry run with id {dry_run_id}")
    return record


DryRunOf = Annotated[DryRunRecord, Depends(dry_run_or_404)]


@router.post(
    "/plans/{plan_id}/candidates/{rank}/dry-run",
    status_code=202,
    summary="Run a candidate's config in the real engine, on fake tensors",
    responses={
        202: {"headers": {"Location": {"schema": {"type": "string"}}}},
        **problem_responses(401, 404, 409, 413, 422),
    },
)
def post_dry_run(
    plan: PlanOf,
    store: StoreOf,
    jobs: JobsOf,
    rank: Rank,
    response: Response,
    body: DryRunRequest | None = None,
    idempotency_key: IdempotencyKey = None,
) -> DryRunResource:
    """Queues it and answers at once; 409 where this service lacks torch or DeepSpeed."""
    candidate = candidate_or_404(store, plan, rank)
    options = body or DryRunRequest(stages=None, time_limit_s=600)
    stages, pp = options.stages or [], int(candidate.plan["pp"])
    wrong = [n for n, stage in enumerate(stages) if not 0 <= stage < pp]
    if wrong:
        raise RequestError(
            Problem(f"/stages/{n}", f"got {stages[n]}", f"give a stage from 0 to {pp - 1}")
            for n in wrong
        )
    lacking = missing_libraries()
    if lacking:
        wanted = "install the 'trials' extra"
        raise HTTPException(409, f"the service lacks {', '.join(lacking)}; {wanted}")
    values = {
        "plan_request_id": plan.id,
        "rank": rank,
        "options": options.model_dump(mode="json"),
    }
    with conflict_as_409():
        record, _ = store.dry_runs.add_once(
            new_id(), jobs.enqueue_dry_run, once("dry-runs", idempotency_key, values), **values
        )
    made = DryRunResource.of(record)
    response.headers["Location"] = made.links.self
    return made


@router.get(
    "/dry-runs", summary="List dry runs, the newest first", responses=problem_responses(401, 422)
)
def list_dry_runs(store: StoreOf, query: Annotated[JobsQuery, Query()]) -> DryRunPage:
    """One page; `next` leads to the next one."""
    records, following = page_of(store.dry_runs, "/v1/dry-runs", query)
    return DryRunPage(items=[DryRunResource.of(r) for r in records], next=following)


@router.get(
    "/dry-runs/{dry_run_id}",
    summary="State and result of a dry run",
    responses={304: {"description": "Not modified"}, **problem_responses(401, 404)},
)
def get_dry_run(record: DryRunOf) -> DryRunResource:
    """What the engine allocated by phase and category, against the prediction."""
    return DryRunResource.of(record)


@router.post(
    "/dry-runs/{dry_run_id}/cancel",
    summary="Cancel a dry run",
    responses=problem_responses(401, 404, 409),
)
def cancel_dry_run(record: DryRunOf, store: StoreOf) -> DryRunResource:
    """Ends its processes; 409 where it is done already. Cancelling twice is fine."""
    return DryRunResource.of(cancelled(store.dry_runs, record, "dry run"))


@router.delete(
    "/dry-runs/{dry_run_id}",
    summary="Cancel a dry run",
    responses=problem_responses(401, 404, 409),
)
def delete_dry_run(record: DryRunOf, store: StoreOf) -> DryRunResource:
    """The same as POST .../cancel."""
    return DryRunResource.of(cancelled(store.dry_runs, record, "dry run"))
