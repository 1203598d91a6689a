"""What is looked at before anything is launched. No torch here."""

from importlib.util import find_spec
from pathlib import Path

from cost_model.plans import Plan, Software
from trials.trial_file import VERSION, TrialFile

SUPPORTED = (Software.DEEPSPEED, Software.DEEPSPEED_PIPELINE, Software.MEGATRON_DEEPSPEED)
LIBRARIES = ("torch", "deepspeed", "psutil")


class Refused(ValueError):  # noqa: N818
    """A trial that must not be launched; the message says why."""


def check(trial: TrialFile, *, ranks: int, libraries: bool = False) -> None:
    """Raises Refused for a trial that cannot run on an executor of so many ranks.

    libraries: also whether this machine, where it is the worker's, has what a worker imports.
    """
    if trial.version != VERSION:
        raise Refused(f"trial file of version {trial.version}; this worker reads {VERSION}")
    reason = refusal(trial.plan, trial.training.seq_len, ranks=ranks) or _option_refusal(trial)
    if reason is not None:
        raise Refused(reason)
    if libraries:
        missing = missing_libraries()
        if missing:
            raise Refused(f"the worker lacks {', '.join(missing)}; install the 'trials' extra")


def _option_refusal(trial: TrialFile) -> str | None:
    """Why a trial's options do not fit its model or plan."""
    if trial.router_bonus is not None and not trial.model.is_moe:
        return f"{trial.model.name} has no routers to push"
    if trial.router_bonus is not None and trial.plan.pp > 1:
        return "DeepSpeed's pipeline engine takes no loss beside the last stage's"
    adapt = trial.adapt_micro_batch
    if adapt is not None and not adapt.smallest <= trial.plan.micro_batch <= adapt.largest:
        return f"micro_batch {trial.plan.micro_batch} is outside {adapt.smallest}-{adapt.largest}"
    return None


def check_same(folder: Path, trial: TrialFile) -> None:
    """Raises Refused where the trial's folder holds another trial: its result is another's."""
    path = folder / "trial.json"
    if path.exists() and TrialFile.model_validate_json(path.read_text("utf-8")) != trial:
        raise Refused(f"another trial has run under the id {trial.trial_id}; take a new one")


def missing_libraries() -> list[str]:
    """What a worker imports and this interpreter lacks; nothing is imported to find out."""
    return [name for name in LIBRARIES if find_spec(name) is None]


def refusal(plan: Plan, seq_len: int, *, ranks: int) -> str | None:
    """Why a plan cannot run on an executor of so many ranks; None where it can."""
    if plan.world_size > ranks:
        return f"the plan needs {plan.world_size} ranks; the executor has {ranks}"
    if plan.software not in SUPPORTED:
        return f"trials run DeepSpeed's engine, not {plan.software.name.lower()}"
    if seq_len % (plan.sp * plan.cp):
        return f"seq_len {seq_len} is not divisible by sp x cp = {plan.sp * plan.cp}"
    return _pipeline_refusal(plan)


def _pipeline_refusal(plan: Plan) -> str | None:
    if plan.pp > 1 and plan.software is Software.DEEPSPEED:
        return "pipeline stages need software deepspeed_pipeline or megatron_deepspeed"
    if plan.pp > 1 and plan.zero_stage > 1:
        return "DeepSpeed's pipeline engine refuses ZeRO 2 and 3"
    if plan.vpp > 1:
        return "DeepSpeed's pipeline engine has no interleaved schedule"
    if plan.ep > 1 and plan.zero_stage == 3:
        return "DeepSpeed's MoE layer refuses ZeRO 3"
    return None
