"""The prediction of one plan, at once."""

from fastapi import APIRouter

from api.completion import completed
from api.problems import problem_responses
from api.routes.plans import EXAMPLE
from api.schemas.candidates import Predicted, summary
from planner.request import PredictRequest
from planner.rules import Violation
from planner.search import predict_one

router = APIRouter(tags=["predict"])


class Prediction(Predicted):
    """What the cost model says of one plan, and which rules it breaks."""

    violations: list[Violation]
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
    predicted = predict_one(resolved, plan)
    return Prediction.model_validate(
        vars(predicted.candidate)
        | {"plan": plan, "summary": summary(plan), "violations": predicted.violations}
    )
