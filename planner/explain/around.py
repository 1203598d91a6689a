"""The user's own plan: its score, and the cheapest changes that improve it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from cost_model.plans import Floats, Plan, PlanTable
from planner.candidate import Candidate, candidate, candidates
from planner.explain.why import changed_knobs, explain
from planner.objectives import keys
from planner.ranking import evaluate, fitting_plans
from planner.request.request import Resolved
from planner.rows import join
from planner.rules import Violation, violations
from planner.space.axes import AXES, DERIVED
from planner.space.emptiness import has_plan
from planner.space.fine import SOLVED

EFFORT = {
    "micro_batch": 1,
    "recompute": 1,
    "chunked_loss": 1,
    "compile": 1,
    "zero_stage": 1,
    "offload_optimizer": 1,
    "offload_param": 1,
    "hpz": 1,
    "quantized_weights": 1,
    "quantized_gradients": 1,
    "sequence_parallel": 1,
    "partition_activations": 1,
    "cpu_checkpointing": 1,
    "comm_16bit": 1,
    "capacity_factor": 1,
    "recompute_layers": 1,
    "reduce_bucket": 1,
    "overlap_comm": 1,
    "prefetch_bucket": 1,
    "max_live_params": 1,
    "offload_ratio": 1,
    "vpp": 2,
    "cp_all_gather": 2,
    "first_stage_layers": 2,
    "last_stage_layers": 2,
    "placement": 2,
    "tp": 3,
    "pp": 3,
    "sp": 3,
    "cp": 3,
    "ep": 3,
    "nodes": 4,
    "software": 6,
}
"""How much work a change of one knob is: a line of the config, a launch, a port of the code.
dp and grad_accum follow from the others."""


SOLVED_ALONE = ("recompute_layers", *SOLVED)
"""Knobs that no axis enumerates and every plan gets the best of."""


@dataclass(frozen=True)
class Improvement:
    """A plan near the user's own that is better."""

    effort: int
    """Sum of EFFORT over the changed knobs."""
    gain: float
    """Share of the step time saved; negative where the change only makes the plan fit."""
    changes: dict[str, tuple[Any, Any]]
    """Changed knobs: (the new value, the user's)."""
    sentence: str
    candidate: Candidate


@dataclass(frozen=True)
class Around:
    """The user's plan and its improvements, the cheapest change first."""

    candidate: Candidate
    violations: tuple[Violation, ...]
    improvements: tuple[Improvement, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dict(_ADAPTER.dump_python(self, mode="json"))


_ADAPTER = TypeAdapter(Around)


def _effort(table: PlanTable, plan: Plan) -> Floats:
    total = np.zeros(len(table))
    for name, cost in EFFORT.items():
        total += cost * (getattr(table, name) != getattr(plan, name))
    return total


def around(resolved: Resolved, plan: Plan) -> Around:
    """Scores a plan and lists the changes that improve it: more effort only where it pays.

    The GPU count stays unless the plan does not fit and nothing on the same nodes does. Knobs that
    are solved plan by plan (buckets and such) are first left as the user has them, then free.
    """
    world = resolved.world
    table = PlanTable.from_plans([plan])
    own = candidate(world, table, evaluate(world, table), 0)
    own = replace(own, why=explain(own))
    broken = tuple(violations(world, plan))
    kept = {
        name: getattr(plan, name)
        for name in Plan.model_fields
        if name not in {*AXES, *DERIVED, "software"}
    }
    free = {name: value for name, value in kept.items() if name not in SOLVED_ALONE}
    usable = own.fits and not broken
    for nodes in (plan.nodes, None):
        asked = []
        for knobs in (kept, free):
            fixed = resolved.search.fixed | knobs | ({} if nodes is None else {"nodes": nodes})
            search = resolved.search.model_copy(update={"fixed": fixed})
            if has_plan(world, search):
                asked.append(replace(resolved, search=search))
        found = _improvements(asked, own, usable)
        if found or usable:
            break
    return Around(own, broken, found)


def _improvements(
    requests: Sequence[Resolved], own: Candidate, usable: bool
) -> tuple[Improvement, ...]:
    """The front of effort against the objective, over the plans of several requests."""
    parts = [(t, s) for one in requests for t, s in fitting_plans(one) if len(t)]
    if not parts:
        return ()
    resolved = requests[0]
    table, scores = join([t for t, _ in parts]), join([s for _, s in parts])
    effort = _effort(table, own.plan)
    objective = keys(resolved.search, table, scores)[0]
    order = np.lexsort((scores.total_bytes, objective, effort))
    mine = own.step.seconds if usable else np.inf
    rows: list[int] = []
    best = np.inf
    for row in order:  # few efforts: only the first row of each can improve
        if effort[row] > 0 and objective[row] < best * (1 - 1e-3) and scores.seconds[row] < mine:
            rows.append(int(row))
            best = float(objective[row])
    picked = table.take(np.array(rows, np.int64))
    if not rows:
        return ()
    prediction = evaluate(resolved.world, picked)
    better = candidates(resolved.world, picked, prediction)
    return tuple(
        _improvement(own, one, int(effort[row])) for one, row in zip(better, rows, strict=True)
    )


def _improvement(own: Candidate, better: Candidate, effort: int) -> Improvement:
    changes = changed_knobs(better, own)
    gain = 1 - better.step.seconds / own.step.seconds
    told = ", ".join(f"{name} {old} -> {new}" for name, (new, old) in changes.items())
    effect = f"{100 * gain:.1f} % faster" if gain >= 0 else f"{-100 * gain:.1f} % slower, but fits"
    return Improvement(effort, gain, changes, f"{told}: {effect}.", better)
