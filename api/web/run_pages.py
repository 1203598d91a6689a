"""Pages of what runs: dry runs, trials, campaigns; their forms are on the pages of plans."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ValidationError

from api.dependencies import JobsOf, PlanOf, StoreOf
from api.routes import campaigns, dry_runs, trials
from api.routes.campaigns import CampaignOf
from api.routes.candidates import Rank
from api.routes.dry_runs import DryRunOf
from api.routes.trials import TrialOf
from api.schemas.campaigns import CampaignRequest, campaign_resource
from api.schemas.dry_runs import DryRunResource
from api.schemas.plans import PlanResource
from api.schemas.trials import TrialsRequest, trial_item, trial_resource
from api.store import Store
from api.web import bars, form
from api.web.templating import GIB, page
from planner.errors import Problem, RequestError
from planner.request.pointers import problems_of
from trials.result import StepMeasurement

router = APIRouter(include_in_schema=False)

Fields = Annotated[dict[str, str], Depends(form.fields)]

ROWS = 20
"""Steps of each rank on the page of a trial that runs."""

BACK = 303
"""See other: the browser goes to what the form has made."""


def _typed(value: Any) -> Any:
    """A field of a form as the number that it spells, where it spells one."""
    for read in (int, float):
        try:
            return read(value) if isinstance(value, str) else value
        except ValueError:
            continue
    return value


def _parsed(model: type[BaseModel], given: dict[str, Any]) -> Any:
    fields = {name: _typed(value) for name, value in given.items() if value != ""}
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise RequestError(problems_of(error.errors(), model)) from error


def _made(make: Callable[[], str], plan_id: str) -> Response:
    """Goes to what was made, or says what is wrong with the form."""
    problems: tuple[Problem, ...] = ()
    try:
        return RedirectResponse(make(), BACK)
    except RequestError as error:
        problems = error.problems
    except HTTPException as error:
        problems = (Problem("", str(error.detail), "see the documentation"),)
    return page("refused.html", status=422, problems=problems, back=f"/plans/{plan_id}")


@router.post("/plans/{plan_id}/candidates/{rank}/dry-run")
def start_dry_run(
    plan: PlanOf, store: StoreOf, jobs: JobsOf, rank: Rank, given: Fields
) -> Response:
    """The button on a candidate's page."""
    del given  # only where it was sent from matters

    def make() -> str:
        return dry_runs.post_dry_run(plan, store, jobs, rank, Response()).links.page

    return _made(make, plan.id)


def _with_options(given: dict[str, str]) -> dict[str, Any]:
    """A trial's form with the options that are objects in a request."""
    fields: dict[str, Any] = dict(given)
    if given.get("adapt_micro_batch"):
        fields["adapt_micro_batch"] = {}
    if given.get("router_bonus"):
        fields["router_bonus"] = {"weight": _typed(given["router_bonus"])}
    return fields


@router.post("/plans/{plan_id}/candidates/{rank}/trial")
def start_trial(plan: PlanOf, store: StoreOf, jobs: JobsOf, rank: Rank, given: Fields) -> Response:
    """The form on a candidate's page."""

    def make() -> str:
        body = _parsed(TrialsRequest, _with_options(given) | {"candidates": [rank]})
        return trial_item(trials.added(body, plan, store, jobs)[0]).links.page

    return _made(make, plan.id)


@router.post("/plans/{plan_id}/campaigns")
def start_campaign(plan: PlanOf, store: StoreOf, jobs: JobsOf, given: Fields) -> Response:
    """The form on the page of a request."""

    def make() -> str:
        body = _parsed(CampaignRequest, given)
        return campaign_resource(campaigns.added(body, plan, store, jobs)).links.page

    return _made(make, plan.id)


def _plan(store: Store, plan_id: str) -> PlanResource:
    record = store.plan(plan_id)
    assert record is not None
    return PlanResource.of(record)


@router.get("/dry-runs/{dry_run_id}")
def look_at_dry_run(record: DryRunOf, store: StoreOf) -> Response:
    """Bytes by category and phase, beside the prediction."""
    one = DryRunResource.of(record)
    found = one.result
    rows: list[tuple[str, float, float | None]] = []
    timeline: list[tuple[str, Any]] = []
    if found is not None:
        guess = found["predicted"] or {"categories": {}, "phases": {}}
        rows = [("peak", found["peak_allocated_gib"], guess.get("peak_allocated_gib"))]
        rows += [(f"phase {n}", v, guess["phases"].get(n)) for n, v in found["phases"].items()]
        names = sorted({*found["categories"], *guess["categories"]})
        rows += [
            (n, found["categories"].get(n, 0.0), guess["categories"].get(n, 0.0)) for n in names
        ]
        most = max(m["allocated_gib"] for m in found["timeline"])
        every = sorted({n for m in found["timeline"] for n in m["categories"]})
        timeline = [
            (
                f"step {m['step']}, {m['phase']}, micro-batch {m['micro_batch']}",
                bars.stacked({n: m["categories"].get(n, 0.0) * GIB for n in every}, most * GIB),
            )
            for m in found["timeline"]
        ]
    return page(
        "dry_run.html",
        plan=_plan(store, record.plan_request_id),
        one=one,
        rows=rows,
        timeline=timeline,
        peak=max((segments for _, segments in timeline), key=len, default=[]),
        width=bars.WIDTH,
    )


@dataclass(frozen=True)
class _Step:
    """One row of a trial's page."""

    rank: int
    number: int
    warm_up: bool
    measured: StepMeasurement
    segments: list[bars.Segment]


@router.get("/trials/{trial_id}")
def look_at_trial(record: TrialOf, store: StoreOf, jobs: JobsOf) -> Response:
    """How it goes, step by step."""
    one = trial_resource(record, trials.so_far(record, jobs))
    measured = [(r.rank, n, s) for r in one.ranks for n, s in enumerate((*r.warmup, *r.steps))]
    measured += [
        (r.rank, n, s)
        for r in one.so_far
        for n, s in enumerate(r.steps[-ROWS:], r.done - len(r.steps[-ROWS:]))
    ]
    longest = max((s.seconds for _, _, s in measured), default=0.0)
    parts = ("forward", "backward", "step")
    return page(
        "trial.html",
        plan=_plan(store, record.plan_request_id),
        one=one,
        of=one.options["warmup_steps"] + one.options["steps"],
        series=[
            _Step(
                rank,
                number,
                number < one.options["warmup_steps"],
                step,
                bars.stacked({p: getattr(step, p) for p in parts}, longest),
            )
            for rank, number, step in measured
        ],
        width=bars.WIDTH,
    )


@router.get("/campaigns/{campaign_id}")
def look_at_campaign(record: CampaignOf, store: StoreOf) -> Response:
    """What was tried, what it taught, how sure the best is."""
    return page(
        "campaign.html",
        plan=_plan(store, record.plan_request_id),
        one=campaign_resource(record),
    )


@router.post("/dry-runs/{dry_run_id}/cancel")
def stop_dry_run(record: DryRunOf, store: StoreOf, given: Fields) -> Response:
    """The button on its page."""
    del given
    store.dry_runs.cancel(record.id)
    return RedirectResponse(f"/dry-runs/{record.id}", BACK)


@router.post("/trials/{trial_id}/cancel")
def stop_trial(record: TrialOf, store: StoreOf, given: Fields) -> Response:
    """The button on its page."""
    del given
    store.trials.cancel(record.id)
    return RedirectResponse(f"/trials/{record.id}", BACK)


@router.post("/campaigns/{campaign_id}/cancel")
def stop_campaign(record: CampaignOf, store: StoreOf, given: Fields) -> Response:
    """The button on its page."""
    del given
    store.campaigns.cancel(record.id)
    return RedirectResponse(f"/campaigns/{record.id}", BACK)
