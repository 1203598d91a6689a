"""A candidate in the formats of the tools that run it."""

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Response
from pydantic import BaseModel

from api.dependencies import PlanOf, StoreOf
from api.exporting import exported
from api.problems import problem_responses
from api.resolving import resolved_for
from api.routes.candidates import Rank, candidate_or_404
from cost_model.plans import Plan
from planner.export.registry import FORMATS, NotExportable

router = APIRouter(prefix="/plans/{plan_id}/candidates/{rank}", tags=["exports"])


class ExportFormats(BaseModel):
    """The formats, and where each is."""

    items: dict[str, str]


class ExportedFiles(BaseModel):
    """All files of one format."""

    main: str
    """The file that matters most."""
    files: dict[str, Any]
    """Text as it is; binary content as {"base64": ...}."""


@router.get("/exports", summary="List the formats", responses=problem_responses(401, 404))
def list_formats(plan: PlanOf, store: StoreOf, rank: Rank) -> ExportFormats:
    """Formats by name; one that cannot express the plan says so when it is asked for."""
    candidate_or_404(store, plan, rank)
    own = f"/v1/plans/{plan.id}/candidates/{rank}/export"
    return ExportFormats(items={name: f"{own}/{name}" for name in FORMATS})


@router.get("/exports/{name}", include_in_schema=False)
@router.get(
    "/export/{name}",
    summary="A candidate in one format",
    response_model=ExportedFiles,
    responses={
        200: {"content": {"text/plain": {}, "application/zip": {}, "application/yaml": {}}},
        **problem_responses(401, 404, 409),
    },
)
def get_export(
    plan: PlanOf,
    store: StoreOf,
    rank: Rank,
    name: Annotated[str, Path(description="A format, such as hf_trainer or bundle.")],
    files: Annotated[
        bool, Query(description="All files as JSON instead of the main one as it is.")
    ] = False,
) -> Any:
    """The main file, or all files as JSON; 409 where the format cannot express the plan."""
    record = candidate_or_404(store, plan, rank)
    if name not in FORMATS:
        raise HTTPException(404, f"there is no format {name}; {', '.join(FORMATS)} would do")
    resolved = resolved_for(plan, record)
    try:
        made = exported(name, resolved, Plan.model_validate(record.plan), plan.request, {})
    except NotExportable as error:
        raise HTTPException(409, str(error)) from error
    if files:
        return made.to_json()
    headers = {"Content-Disposition": f'attachment; filename="{made.main.rsplit("/", 1)[-1]}"'}
    return Response(made.files[made.main], media_type=made.media_type, headers=headers)
