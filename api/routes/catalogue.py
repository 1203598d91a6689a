"""What is known by name."""

from fastapi import APIRouter

from api.problems import problem_responses
from api.schemas.catalogue import Hardware, Models, known_hardware, known_models

router = APIRouter(tags=["catalogue"])


@router.get("/hardware", responses=problem_responses(401))
def hardware() -> Hardware:
    """GPUs and machines of the catalogue."""
    return known_hardware()


@router.get("/models", responses=problem_responses(401))
def models() -> Models:
    """Model presets of the catalogue."""
    return known_models()
