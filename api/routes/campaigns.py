"""Campaigns: trials of the most promising plans, until the best is known."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Response
from fastapi.responses import PlainTextResponse

from api.calibrated import key_of
from api.dependencies import JobsOf, PlanOf, StoreOf
from api.http.cancelling import cancelled
from api.http.idempotency import IdempotencyKey, conflict_as_409, once
from api.http.paging import JobsQuery, page_of
from api.jobs import Jobs
from api.problems import problem_responses
from api.schemas.campaigns import (
    CampaignPage,
    CampaignRequest,
    CampaignResource,
    campaign_item,
    campaign_resource,
)
from api.store import CampaignRecord, PlanRecord, Store, new_id
from planner.errors import Problem, RequestError
from planner.request import PlanRequest
from trials.campaign import CampaignState, export_study

router = APIRouter(tags=["campaigns"])


def campaign_or_404(campaign_id: str, store: StoreOf) -> CampaignRecord:
    """The campaign that the path names."""
    record = store.campaigns.get(campaign_id)
    if record is None:
        raise HTTPException(404, f"there is no campaign with id {campaign_id}")
    return record


CampaignOf = Annotated[CampaignRecord, Depends(campaign_or_404)]


@router.post(
    "/plans/{plan_id}/campaigns",
    status_code=202,
    summary="Verify the best plans by trials, and learn from them",
    responses={
        202: {"headers": {"Location": {"schema": {"type": "string"}}}},
        **problem_responses(401, 404, 409, 413, 422),
    },
)
def post_campaign(
    plan: PlanOf,
    store: StoreOf,
    jobs: JobsOf,
    response: Response,
    body: CampaignRequest | None = None,
    idempotency_key: IdempotencyKey = None,
) -> CampaignResource:
    """Queues it and answers at once; 409 where the request has groups of different nodes.

    Trials run until the best plan is known with the asked confidence or the budget is spent. What
    they teach about this kind of cluster serves later searches and predictions.
    """
    with conflict_as_409():
        record = added(body or CampaignRequest(), plan, store, jobs, idempotency_key)
    made = campaign_resource(record)
    response.headers["Location"] = made.links.self
    return made


def added(
    body: CampaignRequest, plan: PlanRecord, store: Store, jobs: Jobs, again: str | None = None
) -> CampaignRecord:
    """Checks what can be checked before the first trial, and queues the campaign.

    again: the key of a request that may come again.
    """
    jobs.executors.get(body.executor)
    lacking = jobs.executors.lacking(body.executor)
    if lacking:
        given = f"{body.executor} lacks {', '.join(lacking)}"
        raise RequestError([Problem("/executor", given, "install the 'trials' extra there")])
    resolved = PlanRequest.parse(plan.request).resolve()
    key = key_of(resolved)
    if key is None:
        raise HTTPException(409, "a campaign wants equal nodes; ask for one group of them alone")
    known = store.calibrations.get(key) if body.calibrated else None
    sent = {"plan_id": plan.id} | body.model_dump(mode="json")
    return store.campaigns.add_once(
        new_id(),
        jobs.enqueue_campaign,
        once("campaigns", again, sent),
        plan_request_id=plan.id,
        executor=body.executor,
        settings=body.settings().model_dump(mode="json"),
        known=None if known is None else known.calibration,
    )[0]


@router.get(
    "/campaigns", summary="List campaigns, the newest first", responses=problem_responses(401, 422)
)
def list_campaigns(store: StoreOf, query: Annotated[JobsQuery, Query()]) -> CampaignPage:
    """One page; `next` leads to the next one."""
    records, following = page_of(store.campaigns, "/v1/campaigns", query)
    return CampaignPage(items=[campaign_item(r) for r in records], next=following)


@router.get(
    "/campaigns/{campaign_id}",
    summary="State, trials and ranking of a campaign",
    responses={304: {"description": "Not modified"}, **problem_responses(401, 404)},
)
def get_campaign(record: CampaignOf) -> CampaignResource:
    """What was tried, what it taught, and how sure the best plan is, so far."""
    return campaign_resource(record)


@router.get(
    "/campaigns/{campaign_id}/study",
    summary="The study of a campaign as an Optuna journal",
    response_class=PlainTextResponse,
    responses=problem_responses(401, 404, 409),
)
def get_study(record: CampaignOf, store: StoreOf) -> Response:
    """A file that optuna-dashboard and Optuna's JournalStorage open; 409 before the first ranking.

    Values are logarithms of step times, or of the objective; the attribute `source` tells what was
    measured from what the calibrated model predicts.
    """
    plan = store.plan(record.plan_request_id)
    assert plan is not None
    state = None if record.result is None else CampaignState.model_validate(record.result)
    if state is None or not state.ranking:
        raise HTTPException(409, "the campaign has ranked no plan yet")
    resolved = PlanRequest.parse(plan.request).resolve()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "study.log"
        export_study(resolved, state, path)
        journal = path.read_text("utf-8")
    name = f'attachment; filename="study-{record.id}.log"'
    return PlainTextResponse(journal, headers={"Content-Disposition": name})


@router.post(
    "/campaigns/{campaign_id}/cancel",
    summary="Cancel a campaign",
    responses=problem_responses(401, 404, 409),
)
def cancel_campaign(record: CampaignOf, store: StoreOf) -> CampaignResource:
    """Ends its trials; what was learned stays. 409 where it is done already."""
    return campaign_resource(cancelled(store.campaigns, record, "campaign"))


@router.delete(
    "/campaigns/{campaign_id}",
    summary="Cancel a campaign",
    responses=problem_responses(401, 404, 409),
)
def delete_campaign(record: CampaignOf, store: StoreOf) -> CampaignResource:
    """The same as POST .../cancel."""
    return campaign_resource(cancelled(store.campaigns, record, "campaign"))
