"""Trials of candidates on real devices."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from api.dependencies import JobsOf, PlanOf, StoreOf
from api.executors import Place
from api.http.cancelling import cancelled
from api.http.idempotency import IdempotencyKey, conflict_as_409, once
from api.http.paging import JobsQuery, page_of
from api.jobs import Jobs
from api.problems import problem_responses
from api.schemas.trials import (
    TrialOptions,
    TrialPage,
    TrialPrediction,
    TrialResource,
    TrialsAccepted,
    TrialsRequest,
    trial_item,
    trial_resource,
)
from api.store import CandidateRecord, PlanRecord, Store, TrialRecord
from api.trials import check_all, trial_of
from planner.errors import Problem, RequestError
from trials.step_log import RankSteps

router = APIRouter(tags=["trials"])

STEPS_SHOWN = 200
"""Steps of a rank that runs in an answer."""


class Places(BaseModel):
    """Where trials may run."""

    items: list[Place]


@router.get("/executors", summary="Where trials may run", responses=problem_responses(401))
def list_executors(jobs: JobsOf) -> Places:
    """As the service's own settings say."""
    return Places(items=jobs.executors.places())


def trial_or_404(trial_id: str, store: StoreOf) -> TrialRecord:
    """The trial that the path names."""
    record = store.trials.get(trial_id)
    if record is None:
        raise HTTPException(404, f"there is no trial with id {trial_id}")
    return record


TrialOf = Annotated[TrialRecord, Depends(trial_or_404)]


def candidates_of(store: Store, plan: PlanRecord, ranks: list[int]) -> list[CandidateRecord]:
    """The candidates of a body; RequestError names those that are not there."""
    found, problems = [], []
    kept = (plan.result or {}).get("kept", 0)
    for number, rank in enumerate(ranks):
        one = store.candidate(plan.id, rank) if 1 <= rank < 2**31 else None
        if one is None:
            wanted = f"give a rank from 1 to {kept}" if kept else f"the search is {plan.status}"
            problems.append(
                Problem(f"/candidates/{number}", f"there is no candidate {rank}", wanted)
            )
        elif rank in ranks[:number]:
            problems.append(
                Problem(f"/candidates/{number}", f"{rank} is there twice", "once is enough")
            )
        else:
            found.append(one)
    if problems:
        raise RequestError(problems)
    return found


@router.post(
    "/plans/{plan_id}/trials",
    status_code=202,
    summary="Try candidates on real devices",
    responses=problem_responses(401, 404, 409, 413, 415, 422),
    openapi_extra={
        "requestBody": {
            "content": {
                "application/json": {
                    "examples": {"best": {"value": {"candidates": [1], "executor": "local"}}}
                }
            }
        }
    },
)
def post_trials(
    body: TrialsRequest,
    plan: PlanOf,
    store: StoreOf,
    jobs: JobsOf,
    idempotency_key: IdempotencyKey = None,
) -> TrialsAccepted:
    """Queues a trial for each candidate and answers at once.

    A plan that the executor cannot run is refused here, with the reason, before anything starts.
    """
    with conflict_as_409():
        made = added(body, plan, store, jobs, idempotency_key)
    return TrialsAccepted(items=[trial_item(r) for r in made])


def added(
    body: TrialsRequest, plan: PlanRecord, store: Store, jobs: Jobs, key: str | None = None
) -> list[TrialRecord]:
    """Checks all trials, then queues all. key: of a request that may come again."""
    jobs.executors.get(body.executor)
    candidates = candidates_of(store, plan, body.candidates)
    options = body.model_dump(include=set(TrialOptions.model_fields))
    trials = [trial_of(plan, one, options) for one in candidates]
    check_all(jobs.executors, body.executor, trials, "/candidates")
    sent = {"plan_id": plan.id} | body.model_dump(mode="json")
    return [
        store.trials.add_once(
            trial.trial_id,
            jobs.enqueue_trial(body.executor),
            once(f"trials/{one.rank}", key, sent),
            plan_request_id=plan.id,
            rank=one.rank,
            executor=body.executor,
            trial=trial.model_dump(mode="json"),
            predicted=TrialPrediction.of(one).model_dump(),
        )[0]
        for one, trial in zip(candidates, trials, strict=True)
    ]


class TrialsQuery(JobsQuery):
    """Which trials."""

    campaign_id: str | None = Field(None, max_length=100)
    executor: str | None = Field(None, max_length=32)


@router.get(
    "/trials", summary="List trials, the newest first", responses=problem_responses(401, 422)
)
def list_trials(store: StoreOf, query: Annotated[TrialsQuery, Query()]) -> TrialPage:
    """One page; `next` leads to the next one."""
    records, following = page_of(store.trials, "/v1/trials", query)
    return TrialPage(items=[trial_item(r) for r in records], next=following)


@router.get(
    "/trials/{trial_id}",
    summary="State, outcome and time series of a trial",
    responses={304: {"description": "Not modified"}, **problem_responses(401, 404)},
)
def get_trial(record: TrialOf, jobs: JobsOf) -> TrialResource:
    """Seconds and loss of every rank, step by step, while it runs; memory too once it has ended."""
    return trial_resource(record, so_far(record, jobs))


def so_far(record: TrialRecord, jobs: Jobs) -> tuple[RankSteps, ...]:
    """What the executor sees of a trial's steps; nothing where it is not switched on here."""
    if record.executor not in jobs.executors.names:
        return ()
    return jobs.executors.get(record.executor).steps(record.id, STEPS_SHOWN)


@router.get(
    "/trials/{trial_id}/logs",
    summary="What the ranks of a trial printed",
    response_class=PlainTextResponse,
    responses=problem_responses(401, 404),
)
def get_trial_logs(record: TrialOf, jobs: JobsOf) -> str:
    """The end of it once the trial is done; all that is there while it runs."""
    if record.logs is not None or record.executor not in jobs.executors.names:
        return record.logs or ""
    return jobs.executors.get(record.executor).logs(record.id)


@router.post(
    "/trials/{trial_id}/cancel",
    summary="Cancel a trial",
    responses=problem_responses(401, 404, 409),
)
def cancel_trial(record: TrialOf, store: StoreOf) -> TrialResource:
    """Ends all its processes; 409 where it is done already. Cancelling twice is fine."""
    return trial_resource(cancelled(store.trials, record, "trial"))


@router.delete(
    "/trials/{trial_id}",
    summary="Cancel a trial",
    responses=problem_responses(401, 404, 409),
)
def delete_trial(record: TrialOf, store: StoreOf) -> TrialResource:
    """The same as POST .../cancel."""
    return trial_resource(cancelled(store.trials, record, "trial"))
