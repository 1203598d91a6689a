"""Fills in the knobs of a plan that follow from the rest."""

from dataclasses import replace

from cost_model.plans import Plan
from planner.request import Resolved


def completed(plan: Plan, resolved: Resolved) -> Plan:
    """The plan on all GPUs of the cluster, with the batch that the training run asks for.

    Fills in `dp`, `nodes` and `grad_accum` where they were not given. What does not divide is
    rounded down: the rules then say what is wrong with it.
    """
    given, values = plan.model_fields_set, plan.model_dump()
    if "dp" not in given:
        used = values.get("nodes") if "nodes" in given else resolved.cluster.nodes
        gpus = (used or 1) * resolved.cluster.node.gpus_per_node
        values["dp"] = max(1, gpus // (plan.tp * plan.pp * plan.sp * plan.cp))
    if "nodes" not in given:
        ranks = plan.tp * plan.pp * plan.sp * plan.cp * values["dp"]
        values["nodes"] = -(-ranks // resolved.cluster.node.gpus_per_node)
    if "grad_accum" not in given:
        unit = values["dp"] * plan.micro_batch
        values["grad_accum"] = max(1, resolved.training.global_batch // unit)
    return Plan.model_validate(values)


def with_own_plan(resolved: Resolved) -> Resolved:
    """The request with the user's own plan completed, where it has one."""
    own = resolved.search.around
    if own is None:
        return resolved
    search = resolved.search.model_copy(update={"around": completed(own, resolved)})
    return replace(resolved, search=search)
