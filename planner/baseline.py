"""The practitioner's rule of thumb, as a named baseline for the exact search."""

from dataclasses import replace

import numpy as np

from cost_model.plans import Plan, Recompute, Software
from planner.candidate import Candidate, candidate
from planner.ranking import evaluate, fitting_plans
from planner.request.request import Resolved

ORDER = (Software.MEGATRON_DEEPSPEED, Software.DEEPSPEED_PIPELINE, Software.DEEPSPEED)


def rule_of_thumb(resolved: Resolved) -> Candidate | None:
    """TP until it fits, then PP, then DP with the rest; None where no such plan fits.

    As practitioners state it: tensor parallelism within the node as far as memory demands, then
    pipeline stages, then data parallelism over all GPUs; ZeRO 1, full recompute, no offload, the
    largest micro-batch that fits. Where the model cannot be built that way (experts, adapters),
    the smallest ZeRO stage that fits takes the place of stages.
    """
    usual = {
        "nodes": resolved.cluster.nodes,
        "sp": 1,
        "cp": 1,
        "recompute": Recompute.FULL,
        "hpz": 1,
        "chunked_loss": False,
        "partition_activations": False,
        "cpu_checkpointing": False,
    }
    no_offload = resolved.search.allow.model_copy(update={"offload": False})
    search = resolved.search.model_copy(
        update={"fixed": usual | resolved.search.fixed, "allow": no_offload}
    )
    for software in ORDER:
        if software not in search.software:
            continue
        asked = replace(resolved, search=search.model_copy(update={"software": (software,)}))
        found = _first(asked)
        if found is not None:
            return found
    return None


def _first(resolved: Resolved) -> Candidate | None:
    parts = [table for table, _ in fitting_plans(resolved) if len(table)]
    if not parts:
        return None
    choices = []
    for table in parts:
        stage = np.where(table.zero_stage == 0, 4, table.zero_stage)  # ZeRO 1 is the custom
        order = np.lexsort(
            (-table.micro_batch, ~table.sequence_parallel, stage, table.pp, table.tp)
        )
        row = int(order[0])
        choices.append((_key(table.plan(row)), table.take(np.array([row]))))
    table = min(choices, key=lambda choice: choice[0])[1]
    world = resolved.world
    return candidate(world, table, evaluate(world, table), 0)


def _key(plan: Plan) -> tuple[int, ...]:
    return (plan.tp, plan.pp, plan.zero_stage or 4, -plan.micro_batch)
