"""A machine that is the cost model under other coefficients, and so has a known best plan."""

import zlib
from collections.abc import Mapping

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.calibration.cluster import FACTORS, scaled
from cost_model.plans import Plan, PlanTable
from cost_model.specs import ModelSpec, TrainingSpec
from cost_model.step import step_time
from planner.request import PlanRequest, Resolved
from trials.executors.protocol import State
from trials.outcome import Kind, Outcome
from trials.result import MemoryMeasurement, RankReport, StepMeasurement, TrialResult
from trials.step_log import RankSteps
from trials.trial_file import TrialFile

SMALL = {"hidden": 256, "layers": 4, "heads": 4, "intermediate": 704, "vocab": 4096}


def measured_step(seconds: float) -> StepMeasurement:
    """A step of which only the time matters."""
    return StepMeasurement(
        seconds=seconds,
        forward=0.0,
        backward=0.0,
        step=seconds,
        communication={},
        traffic_bytes={},
        loss=1.0,
        grad_norm=1.0,
        tokens=1,
    )


def request(**search: object) -> Resolved:
    """A small model on two ranks of a processor; some forty plans."""
    return PlanRequest.parse(
        {
            "model": SMALL,
            "cluster": "local-cpu",
            "training": {"seq_len": 128, "global_batch": 8, "precision": "fp32"},
            "search": {
                "software": ["deepspeed", "deepspeed_pipeline"],
                "allow": {"offload": False, "recompute": False, "chunked_loss": False},
                **search,
            },
        }
    ).resolve()


def many_gpus(nodes: int = 4) -> Resolved:
    """A 13B model on A100 nodes."""
    return PlanRequest.parse(
        {
            "model": "llama-2-13b",
            "cluster": {"preset": "dgx-a100-80g", "nodes": nodes},
            "training": {"seq_len": 4096, "global_batch": 64},
            "search": {
                "allow": {"offload": False, "sp": False},
                "limits": {"micro_batch": {"max": 2}, "pp": {"max": 4}},
            },
        }
    ).resolve()


class Machine:
    """An executor whose step times follow from perturbed coefficients."""

    name = "synthetic"

    def __init__(
        self,
        resolved: Resolved,
        factors: Mapping[str, float],
        *,
        ranks: int = 2,
        own: float = 0.0,
        fails: Mapping[str, Kind] | None = None,
    ):
        """factors: logarithms by name. own: deviation of each plan's own part. fails: outcome by
        trial id."""
        self.cluster = resolved.cluster
        self.known = scaled(
            Coefficients.default(), np.array([factors.get(name, 0.0) for name in FACTORS])
        )
        self.ranks, self.own, self.fails = ranks, own, fails or {}
        self.files: dict[str, TrialFile] = {}
        self.results: dict[str, TrialResult] = {}

    def seconds(self, model: ModelSpec, training: TrainingSpec, plan: Plan) -> float:
        """The true step time."""
        table = PlanTable.from_plans([plan])
        step = step_time(model, self.cluster, training, table, self.known)
        draw = np.random.default_rng(zlib.crc32(plan.model_dump_json().encode()))
        return float(step.seconds[0] * np.exp(self.own * draw.standard_normal()))

    def submit(self, trial: TrialFile) -> None:
        """Runs it at once; a second submit of one id is a fault of the caller."""
        assert trial.trial_id not in self.files
        self.files[trial.trial_id] = trial
        self.results[trial.trial_id] = self._run(trial)

    def _run(self, trial: TrialFile) -> TrialResult:
        kind: Kind = self.fails.get(trial.trial_id, "ok")
        seconds = self.seconds(trial.model, trial.training, trial.plan)
        if kind == "ok" and trial.step_limit_s is not None and seconds > trial.step_limit_s:
            kind = "pruned"
        outcome = Outcome(kind=kind, phase="forward" if kind == "hang" else None)
        if kind not in ("ok", "pruned"):
            return TrialResult(trial_id=trial.trial_id, outcome=outcome, ranks=())
        gpu = self.cluster.node.gpu.generation != "cpu"
        held = MemoryMeasurement(
            phase="backward", allocated=3 * 2**30 if gpu else 0, reserved=0, host=2**30
        )
        report = RankReport(
            rank=0,
            host="here",
            device="a GPU" if gpu else "cpu",
            outcome=outcome,
            steps=(measured_step(seconds),) * trial.steps,
            memory=() if gpu else (held,),
        )
        return TrialResult(
            trial_id=trial.trial_id, outcome=outcome, ranks=(report,), wall_seconds=3.0
        )

    def check(self, trial: TrialFile) -> None:
        """Everything can run here."""

    def state(self, trial_id: str) -> State:
        """There is a result as soon as it was submitted."""
        return State.ENDED if trial_id in self.results else State.UNKNOWN

    def cancel(self, trial_id: str) -> None:
        """Nothing runs."""

    def steps(self, trial_id: str, most: int) -> tuple[RankSteps, ...]:
        """Trials here end as soon as they are submitted."""
        return ()

    def logs(self, trial_id: str) -> str:
        """Nothing is printed."""
        return ""

    def result(self, trial_id: str) -> TrialResult | None:
        """The result."""
        return self.results.get(trial_id)
