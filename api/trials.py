"""From a candidate to the file of its trial."""

from typing import Any

from api.executors import Executors
from api.resolving import resolved_for
from api.store import CandidateRecord, PlanRecord, new_id
from cost_model.plans import Plan
from planner.errors import Problem, RequestError
from planner.export import ds_config
from trials.preflight import Refused
from trials.trial_file import TrialFile


def trial_of(plan: PlanRecord, candidate: CandidateRecord, options: dict[str, Any]) -> TrialFile:
    """The trial of a candidate, under exactly the config that is exported.

    options: fields of TrialFile beside what the candidate decides.
    """
    resolved = resolved_for(plan, candidate)
    chosen = Plan.model_validate(candidate.plan)
    return TrialFile(
        trial_id=new_id(),
        model=resolved.model,
        training=resolved.training,
        plan=chosen,
        ds_config=ds_config(resolved.model, resolved.cluster, resolved.training, chosen),
        device="cpu" if resolved.cluster.node.gpu.generation == "cpu" else "auto",
        **options,
    )


def check_all(executors: Executors, name: str, trials: list[TrialFile], pointer: str) -> None:
    """Raises RequestError for trials that cannot run there, each at its place under `pointer`."""
    executor = executors.get(name)
    problems = []
    for number, trial in enumerate(trials):
        try:
            executor.check(trial)
        except Refused as refused:
            given = str(refused)
            wanted = f"take a candidate that {name} can run (it has {executor.ranks} ranks)"
            problems.append(Problem(f"{pointer}/{number}", given, wanted))
    if problems:
        raise RequestError(problems)
