"""What trials have taught about each kind of cluster."""

from fastapi import APIRouter, HTTPException

from api.dependencies import StoreOf
from api.problems import problem_responses
from api.schemas.campaigns import Calibrations, KeptCalibration, kept_calibration

router = APIRouter(prefix="/calibrations", tags=["campaigns"])


@router.get("", summary="What trials have taught", responses=problem_responses(401))
def list_calibrations(store: StoreOf) -> Calibrations:
    """One for each kind of cluster on which a campaign ran."""
    found = (kept_calibration(r) for r in store.calibrations.every())
    return Calibrations(items=[one for one in found if one is not None])


@router.get(
    "/{key}",
    summary="What trials have taught about one kind of cluster",
    responses={304: {"description": "Not modified"}, **problem_responses(401, 404)},
)
def get_calibration(key: str, store: StoreOf) -> KeptCalibration:
    """Factors on the shipped coefficients."""
    record = store.calibrations.get(key)
    found = None if record is None else kept_calibration(record)
    if found is None:
        raise HTTPException(404, f"no trials have taught anything about {key}")
    return found


@router.delete(
    "/{key}",
    status_code=204,
    summary="Forget what trials have taught about one kind of cluster",
    responses=problem_responses(401, 404),
)
def forget_calibration(key: str, store: StoreOf) -> None:
    """Later searches use the shipped coefficients again; earlier results stay as they are."""
    if not store.calibrations.forget(key):
        raise HTTPException(404, f"no trials have taught anything about {key}")
