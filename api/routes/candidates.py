"""The ranking of a request: pages of candidates, one in full, its config."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Path, Query, Request

from api.dependencies import PlanOf, StoreOf
from api.http.cursor import encode
from api.http.filters import CandidateFilters, query_of
from api.problems import problem_responses
from api.resolving import planned, resolved_for
from api.schemas.candidates import CandidateDetail, CandidateItem, CandidatePage, links
from api.store import CandidateRecord, PlanRecord, Store
from api.wording import standing, summary
from cost_model.plans import Plan
from planner.explain import explain, memory_by_stage
from planner.export import ds_config

router = APIRouter(prefix="/plans/{plan_id}/candidates", tags=["candidates"])

Rank = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get(
    "",
    summary="Page through the ranking",
    responses={304: {"description": "Not modified"}, **problem_responses(401, 404, 422)},
)
def list_candidates(
    request: Request,
    plan: PlanOf,
    store: StoreOf,
    filters: Annotated[CandidateFilters, Query()],
) -> CandidatePage:
    """Filters and sort hold over all pages; the list is empty until the search has succeeded."""
    page = store.candidates(plan.id, query_of(filters))
    following = None
    if page.after is not None:
        others = [(k, v) for k, v in request.query_params.multi_items() if k != "cursor"]
        cursor = encode(filters.sort, *page.after)
        following = f"/v1/plans/{plan.id}/candidates?" + urlencode([*others, ("cursor", cursor)])
    return CandidatePage(items=[CandidateItem.of(c) for c in page.items], next=following)


def candidate_or_404(store: Store, plan: PlanRecord, rank: int) -> CandidateRecord:
    """The candidate of a rank; 404 says how far the search is."""
    found = store.candidate(plan.id, rank)
    if found is None:
        kept = (plan.result or {}).get("kept", 0)
        said = f"the search {standing(plan.status)} and kept {kept}"
        raise HTTPException(404, f"there is no candidate {rank}: {said}")
    return found


@router.get(
    "/{rank}",
    summary="One candidate in full",
    responses={304: {"description": "Not modified"}, **problem_responses(401, 404, 422)},
)
def get_candidate(plan: PlanOf, store: StoreOf, rank: Rank) -> CandidateDetail:
    """Memory by category, stage and phase, step time by part, the run, and why it ranks here."""
    record = candidate_or_404(store, plan, rank)
    one = planned(record)
    assert one is not None
    best, following = (planned(store.candidate(plan.id, other)) for other in (1, rank + 1))
    world = resolved_for(plan, record).world
    why = explain(one, best, following)
    return CandidateDetail.model_validate(
        vars(one)
        | {
            "summary": summary(one.plan),
            "stages": memory_by_stage(world, one.plan),
            "why": why,
            "links": links(plan.id, rank),
        }
    )


@router.get(
    "/{rank}/ds_config",
    summary="The DeepSpeed config of a candidate",
    responses={304: {"description": "Not modified"}, **problem_responses(401, 404, 422)},
)
def get_ds_config(plan: PlanOf, store: StoreOf, rank: Rank) -> dict[str, Any]:
    """What `deepspeed.initialize` takes as it is, at the plan's world size."""
    record = candidate_or_404(store, plan, rank)
    resolved = resolved_for(plan, record)
    chosen = Plan.model_validate(record.plan)
    return ds_config(resolved.model, resolved.cluster, resolved.training, chosen)
