"""What is looked at before anything is launched. No torch here."""

from importlib.util import find_spec

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
    plan = trial.plan
    if plan.world_size > ranks:
        raise Refused(f"the plan needs {plan.world_size} ranks; the executor has {ranks}")
    if plan.software not in SUPPORTED:
        raise Refused(f"trials run DeepSpeed's engine, not {plan.software.name.lower()}")
    length = trial.training.seq_len
    if length % (plan.sp * plan.cp):
        raise Refused(f"seq_len {length} is not divisible by sp x cp = {plan.sp * plan.cp}")
    _check_pipeline(plan)
    if libraries:
        missing = [name for name in LIBRARIES if find_spec(name) is None]
        if missing:
            raise Refused(f"the worker lacks {', '.join(missing)}; install the 'trials' extra")


def _check_pipeline(plan: Plan) -> None:
    if plan.pp > 1 and plan.software is Software.DEEPSPEED:
        raise Refused("pipeline stages need software deepspeed_pipeline or megatron_deepspeed")
    if plan.pp > 1 and plan.zero_stage > 1:
        raise Refused("DeepSpeed's pipeline engine refuses ZeRO 2 and 3")
    if plan.vpp > 1:
        raise Refused("DeepSpeed's pipeline engine has no interleaved schedule")
    if plan.ep > 1 and plan.zero_stage == 3:
        raise Refused("DeepSpeed's MoE layer refuses ZeRO 3")
