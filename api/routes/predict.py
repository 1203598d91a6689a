"""The prediction of one plan, at once."""

from fastapi import APIRouter

from api.calibrated import calibrated as with_calibration
from api.completion import completed
from api.dependencies import StoreOf
from api.problems import problem_responses
from api.routes.plans import EXAMPLE, Calibrated, calibration_for
from api.schemas.campaigns import Calibration
from api.schemas.candidates import Predicted
from api.wording import summary
from planner.request import PredictRequest
from planner.rules import Violation
from planner.search import predict_one

router = APIRouter(tags=["predict"])


class Prediction(Predicted):
    """What the cost model says of one plan, and which rules it breaks."""

    calibration: Calibration | None
    """What trials on such a cluster have taught, where the prediction uses it."""
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
def predict(body: PredictRequest, store: StoreOf, calibrated: Calibrated = True) -> Prediction:
    """Answers also for a plan that breaks rules, and says which.

    `dp`, `nodes` and `grad_accum` may be left out: they follow from the cluster and the batch.
    """
    resolved = body.resolve()
    known = calibration_for(store, resolved) if calibrated else None
    resolved = with_calibration(resolved, known)
    plan = completed(body.plan, resolved)
    predicted = predict_one(resolved, plan)
    return Prediction.model_validate(
        vars(predicted.candidate)
        | {
            "plan": plan,
            "summary": summary(plan),
            "violations": predicted.violations,
            "calibration": Calibration.of(known),
        }
    )
