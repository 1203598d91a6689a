"""The pages."""

import json
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from api.dependencies import JobsOf, PlanOf, StoreOf
from api.http.cursor import encode
from api.http.filters import CandidateFilters, filters_of, query_of
from api.http.partial_plan import asked_of, knobs_of
from api.resolving import resolved_of
from api.routes.candidates import Rank, get_candidate, get_ds_config
from api.routes.explain import explained
from api.routes.plans import calibration_for
from api.schemas.campaigns import campaign_item
from api.schemas.candidates import CandidateItem
from api.schemas.plans import PlanResource
from api.schemas.trials import trial_item
from api.unique_json import parsed_json
from api.web import bars, form
from api.web.templating import page
from api.wording import summary_of
from cost_model import catalogue
from cost_model.plans import Plan
from planner.errors import Problem, RequestError
from planner.explain.why import WORDS
from planner.export.registry import FORMATS
from planner.request import PlanRequest

router = APIRouter(include_in_schema=False)

RECENT = 10

COLUMNS = (
    ("rank", "#"),
    ("gpus", "GPUs"),
    ("step_seconds", "step"),
    ("-tokens_per_s", "tokens/s"),
    ("-mfu", "MFU"),
    ("memory_gib", "GPU memory"),
    ("host_gib", "host"),
    ("-fits_probability", "fits"),
    ("days", "days"),
    ("usd", "USD"),
)
"""Sorts of the ranking with their headings; the plan itself stands after the rank."""

FILTERS = ("software", "zero_stage", "tp", "pp", "sp", "ep", "recompute", "offload_optimizer")
"""Knobs that the page filters by; the address takes every other one as well."""

KNOBS = (*FILTERS[:2], "micro_batch", *FILTERS[2:])
"""Knobs that the page asks "why not" by; the address takes every other one as well."""


def _ask(store: StoreOf, values: dict[str, str], problems: tuple[Problem, ...] = ()) -> Response:
    return page(
        "ask.html",
        status=422 if problems else 200,
        models=catalogue.model_names(),
        clusters=catalogue.cluster_names(),
        objectives=form.OBJECTIVES,
        methods=form.METHODS,
        values=values,
        problems=problems,
        recent=[PlanResource.of(r) for r in store.plans(RECENT)],
    )


@router.get("/")
def ask(store: StoreOf) -> Response:
    """The form, and the last requests."""
    return _ask(store, form.DEFAULTS)


@router.post("/plans")
async def send(request: Request, store: StoreOf, jobs: JobsOf) -> Response:
    """Takes the form; shows it again with what is wrong."""
    values = await form.submitted(request)

    def accepted() -> Response:
        try:
            config = None
            if values["config"]:
                where = "/model/config"
                try:
                    config = parsed_json(values["config"], where)
                except RequestError:
                    raise
                except (ValueError, RecursionError) as error:
                    wanted = "paste a config.json"
                    raise RequestError([Problem(where, f"not JSON: {error}", wanted)]) from error
            body = PlanRequest.parse(form.request_of(values, config))
            resolved = body.resolve()
            summary, known = summary_of(resolved), calibration_for(store, resolved)
        except RequestError as error:
            return _ask(store, values, error.problems)
        sent = body.model_dump(mode="json", exclude_unset=True)
        record, _ = store.add_plan(sent, summary, jobs.enqueue_plan, calibration=known)
        return RedirectResponse(f"/plans/{record.id}", 303)

    return await run_in_threadpool(accepted)


@router.get("/plans/{plan_id}")
def follow(request: Request, plan: PlanOf, store: StoreOf, jobs: JobsOf) -> Response:
    """Progress while the search runs, then the ranking."""
    given = [(k, v) for k, v in request.query_params.multi_items() if v and k != "cursor"]
    problems: tuple[Problem, ...] = ()
    filters = CandidateFilters()
    try:
        filters = filters_of(request.query_params.multi_items())
        query = query_of(filters)
    except RequestError as error:
        problems, query = error.problems, query_of(CandidateFilters())
    found = store.candidates(plan.id, query)
    following = None
    if found.after is not None:
        following = "?" + urlencode([*given, ("cursor", encode(filters.sort, *found.after))])
    best = store.candidate(plan.id, 1)
    resource = PlanResource.of(plan, None if best is None else CandidateItem.of(best))
    unsorted = [(k, v) for k, v in given if k != "sort"]
    heads = [
        (title, "?" + urlencode([*unsorted, ("sort", sort)]), filters.sort == sort)
        for sort, title in COLUMNS
    ]
    return page(
        "plan.html",
        status=422 if problems else 200,
        problems=problems,
        plan=resource,
        items=[CandidateItem.of(c) for c in found.items],
        heads=heads,
        following=following,
        filters=FILTERS,
        knobs=KNOBS,
        given=dict(given),
        executors=jobs.executors.places(),
        campaigns=[campaign_item(r) for r in store.campaigns.page(RECENT, plan_request_id=plan.id)],
        trials=[trial_item(r) for r in store.trials.page(RECENT, plan_request_id=plan.id)],
    )


@router.get("/plans/{plan_id}/explain")
def ask_why_not(request: Request, plan: PlanOf, store: StoreOf) -> Response:
    """Why not a plan with the knobs of the address."""
    given = {k: v for k, v in request.query_params.items() if v}
    problems: tuple[Problem, ...] = ()
    answer = None
    try:
        if given:
            answer = explained(store, plan, asked_of(knobs_of(given)))
    except RequestError as error:
        problems = error.problems
    lost = {} if answer is None else answer.seconds_lost_by_term
    return page(
        "why_not.html",
        status=422 if problems else 200,
        plan=PlanResource.of(plan),
        given=given,
        problems=problems,
        answer=answer,
        lost=sorted(((WORDS[n], s) for n, s in lost.items() if s), key=lambda item: -item[1]),
        knobs=KNOBS,
    )


@router.get("/plans/{plan_id}/candidates/{rank}")
def look(plan: PlanOf, store: StoreOf, jobs: JobsOf, rank: Rank) -> Response:
    """One candidate in full."""
    one = get_candidate(plan, store, rank)
    memory = one.memory
    stages = [
        (stage.stage, phase, bars.stacked(parts, memory.capacity_bytes))
        for stage in one.stages
        for phase, parts in stage.categories.items()
    ]
    return page(
        "candidate.html",
        plan=PlanResource.of(plan),
        one=one,
        memory=bars.stacked(memory.categories, memory.capacity_bytes),
        step=bars.stacked(one.step.parts),
        stages=stages,
        width=bars.WIDTH,
        knobs=_changed(one.plan),
        ds_config=json.dumps(get_ds_config(plan, store, rank), indent=2),
        formats=list(FORMATS),
        executors=jobs.executors.places(),
        mixture=resolved_of(plan).model.is_moe,
    )


def _changed(plan: Plan) -> dict[str, Any]:
    """The knobs that differ from their defaults."""
    default = Plan().model_dump(mode="json")
    return {k: v for k, v in plan.model_dump(mode="json").items() if v != default[k]}
