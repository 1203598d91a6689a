"""The check of a ds_config that somebody else wrote."""

import json
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, field_validator

from api.problems import problem_responses
from planner.check import MODES
from planner.check import check as run_check
from planner.check.report import Severity
from planner.check.schema import DEFAULT_VERSION
from planner.request import ClusterRequest, ModelRequest

router = APIRouter(tags=["check"])


class CheckRequest(BaseModel):
    """A config, and what is known about the run."""

    model_config = ConfigDict(extra="forbid")

    config: str | dict[str, Any]
    """The file's text, as it is (comments and slips included), or the config as JSON."""
    model: ModelRequest | None = None
    cluster: ClusterRequest | None = None
    software: str | None = None
    """Who reads the config: deepspeed, hf_trainer, accelerate, megatron_deepspeed, ..."""
    world_size: int | None = Field(default=None, ge=1, le=2**20)
    """Ranks; the cluster's GPUs where not given."""
    deepspeed_version: str = Field(default=DEFAULT_VERSION, pattern=r"^\d+\.\d+(\.\d+)?[\w.+]*$")
    packages: dict[str, str] = {}
    """Versions of other packages, such as transformers."""
    trainer_args: dict[str, Any] | None = None
    """TrainingArguments beside the config."""
    accelerate_config: dict[str, Any] | None = None
    facts: dict[str, Any] = {}
    """What no config holds: pp, tp, sp, vpp, micro_batches, native_moe, ..."""
    seq_len: int | None = Field(default=None, ge=1, le=2**32)

    @field_validator("software")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value not in MODES:
            raise ValueError(f"must be one of {', '.join(sorted(MODES))}")
        return value


class FindingOut(BaseModel):
    """One thing to know about the config."""

    severity: Severity
    code: str
    path: str
    reason: str
    mend: str


class CheckReport(BaseModel):
    """The whole answer."""

    engine_accepts: bool
    """Whether DeepSpeed's own config class takes it as it stands."""
    findings: list[FindingOut]
    """Errors first."""
    fixed: dict[str, Any]
    """The config mended; what was right is kept."""


@router.post(
    "/check",
    summary="Check a ds_config",
    responses=problem_responses(401, 413, 422),
    openapi_extra={
        "requestBody": {
            "content": {
                "application/json": {
                    "examples": {
                        "typo": {
                            "value": {
                                "config": '{"train_batch_size": 8, "zero_optimisation": '
                                '{"stage": 3}}'
                            }
                        }
                    }
                }
            }
        }
    },
)
def check(body: CheckRequest) -> CheckReport:
    """Keys, values, combinations and batch sizes; with a model and a cluster, memory as well."""
    text = body.config if isinstance(body.config, str) else json.dumps(body.config)
    report = run_check(
        text,
        model=None if body.model is None else body.model.spec(),
        cluster=None if body.cluster is None else body.cluster.spec(),
        software=body.software,
        world_size=body.world_size,
        deepspeed_version=body.deepspeed_version,
        packages=body.packages,
        trainer_args=body.trainer_args,
        accelerate_config=body.accelerate_config,
        facts=body.facts,
        seq_len=body.seq_len,
    )
    return CheckReport.model_validate(report.to_json())
