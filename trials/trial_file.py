"""The file that tells a worker what to run. No torch here."""

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from cost_model.plans import Plan
from cost_model.specs import ModelSpec, TrainingSpec
from cost_model.specs.frozen import Frozen
from trials.options import AdaptMicroBatch, RouterBonus
from trials.proposal import Proposal

VERSION = 1
"""Workers refuse files of another version: old and new nodes may share one file system."""

ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class TrialFile(Frozen):
    """One trial, whole: nothing else is read but the worker's own configuration."""

    version: Literal[1] = 1
    trial_id: str
    """Also the name of the job on a cluster, so that a second submit finds the first."""
    model: ModelSpec
    training: TrainingSpec
    plan: Plan
    ds_config: dict[str, Any]
    """The exported config, unchanged."""
    warmup_steps: int = Field(default=2, ge=0)
    steps: int = Field(default=5, ge=1)
    """Measured optimizer steps."""
    seed: int = 1234
    data: Literal["random", "bytes"] = "random"
    """Random tokens, or the bytes of the Python standard library's sources."""
    same_batch: bool = False
    """Every step sees the first batch: the loss must then fall."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    sweep_collectives: bool = False
    """Measures the bandwidth of the plan's own groups, and a few kernels, before training."""
    step_limit_s: float | None = Field(default=None, gt=0)
    """Stops early once the median measured step is slower than this (pruning)."""
    timeout_s: float = Field(default=600.0, gt=0)
    collective_timeout_s: float = Field(default=120.0, gt=0)
    """After so long in one collective a rank gives up and says who is missing."""
    adapt_micro_batch: AdaptMicroBatch | None = None
    """Adapts the micro-batch on the way, on the same engine."""
    router_bonus: RouterBonus | None = None
    """Of a mixture: watches its routers, and adds an entropy bonus to the loss."""
    proposal: Proposal | None = None
    """Why a campaign wants the trial; no worker reads it."""

    @field_validator("trial_id")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not ID_PATTERN.fullmatch(value):
            raise ValueError("a trial id holds letters, digits, '.', '_' and '-', at most 100")
        return value


def write_trial(folder: Path, trial: TrialFile) -> Path:
    """Writes the file into the folder of the trial, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    return write_atomically(folder / "trial.json", trial.model_dump_json())


def read_trial_file(folder: Path) -> TrialFile:
    """The file in the folder of the trial; raises ValueError for one that cannot be used."""
    return TrialFile.model_validate_json((folder / "trial.json").read_text("utf-8"))


def write_atomically(path: Path, text: str) -> Path:
    """A reader sees the whole file or none, also where the writer is killed."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, "utf-8")
    partial.replace(path)
    return path
