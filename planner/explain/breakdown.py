"""One plan's memory by stage, phase and category."""

from dataclasses import dataclass

from cost_model.memory import detail
from cost_model.plans import Plan
from cost_model.prediction import MEMORY_PHASES
from planner.rules import World


@dataclass(frozen=True)
class StageMemory:
    """Bytes of one pipeline stage."""

    stage: int
    params: float
    """Parameters that one rank of the stage holds before ZeRO shards them."""
    phases: dict[str, float]
    """Total bytes at the worst moment of each phase."""
    categories: dict[str, dict[str, float]]
    """The same by category: phase -> category -> bytes."""


def memory_by_stage(world: World, plan: Plan) -> tuple[StageMemory, ...]:
    """Every stage of a plan; the formulas are those of the search."""
    found = detail(world.model, world.cluster, world.training, plan, world.memory_coefficients)
    stages = []
    for stage, params in enumerate(found.params):
        present = {m.phase for m in found.moments if m.stage == stage}
        worst = {p: found.phase(stage, p) for p in MEMORY_PHASES if p in present}
        stages.append(
            StageMemory(
                stage,
                params,
                {phase: moment.total for phase, moment in worst.items()},
                {phase: moment.categories for phase, moment in worst.items()},
            )
        )
    return tuple(stages)
