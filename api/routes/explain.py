"""Why not X: a partial plan against the best plan of a request."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query

from api.dependencies import PlanOf, StoreOf
from api.http.partial_plan import Knobs, asked_of
from api.problems import problem_responses
from api.resolving import planned, resolved_of
from api.schemas.explain import Explained
from api.store import PlanRecord, Store
from api.wording import standing
from planner.explain import why_not

router = APIRouter(prefix="/plans/{plan_id}/explain", tags=["plans"])


@router.get(
    "",
    summary="Why not another plan",
    responses={304: {"description": "Not modified"}, **problem_responses(401, 404, 409, 422)},
)
def explain_plan(plan: PlanOf, store: StoreOf, knobs: Annotated[Knobs, Query()]) -> Explained:
    """The rule that such plans break, the bytes they miss, or the seconds they lose, by term.

    Knobs that are not given are free: the best of all such plans is compared with the best plan of
    the request. 409 until the search has succeeded.
    """
    return explained(store, plan, asked_of(knobs))


def explained(store: Store, plan: PlanRecord, asked: Mapping[str, Any]) -> Explained:
    """Searches the plans with the asked columns and compares their best with the best of all."""
    if plan.status != "succeeded":
        raise HTTPException(409, f"the search {standing(plan.status)}: no plan to compare with")
    best = planned(store.candidate(plan.id, 1))
    return Explained.of(why_not(resolved_of(plan), asked, best))
