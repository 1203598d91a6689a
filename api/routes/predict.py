"""The prediction of one plan, at once."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from api.completion import completed
from api.problems import problem_responses
from api.routes.plans import EXAMPLE
from api.schemas.candidates import summary
from cost_model.plans import Plan
from planner.request import PredictRequest
from planner.search import predict_one

router = APIRouter(tags=["predict"])


class Prediction(BaseModel):
    """What the cost model says of one plan."""

    model_config = ConfigDict(extra="allow")

    summary: str
    plan: Plan
    gpus: int
    fits: bool
    fits_probability: float
    memory: dict[str, Any]
    step: dict[str, Any]
    run: dict[str, Any] | None
    usd_per_step: float | None
    violations: list[dict[str, Any]]
    """Rules that the plan breaks: it would be refused, or would train something else."""


@router.post(
    "/predict",
    summary="Predict memory and step time of one plan",
    responses=problem_responses(401, 413, 415, 422),
    openapi_extra={
        "requestBody": {
            "content": {
                "application/json": {
                    "examples": {
                        "zero3": {
                            "value": EXAMPLE
                            | {
                                "plan": {
                                    "zero_stage": 3,
                                    "dp": 8,
                                    "micro_batch": 1,
                                    "grad_accum": 32,
                                    "recompute": "full",
                                }
                            }
                        }
                    }
                }
            }
        }
    },
)
def predict(body: PredictRequest) -> Prediction:
    """Answers also for a plan that breaks rules, and says which.

    `dp`, `nodes` and `grad_accum` may be left out: they follow from the cluster and the batch.
    """
    resolved = body.resolve()
    plan = completed(body.plan, resolved)
    predicted = predict_one(resolved, plan).to_json()
    one = predicted["candidate"]
    one.pop("rank")
    return Prediction.model_validate(
        one | {"summary": summary(plan), "violations": predicted["violations"]}
    )
