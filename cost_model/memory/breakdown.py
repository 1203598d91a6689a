"""One plan, taken apart: bytes by stage, moment and category."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients, default_memory_coefficients
from cost_model.memory.footprint import MOMENTS, PHASE_OF_MOMENT, footprint
from cost_model.memory.framework import framework_bytes
from cost_model.memory.layout import given_stages
from cost_model.memory.over_groups import nodes_of_stage
from cost_model.memory.prediction import reserved, tensor_bytes
from cost_model.memory.sharding import placed, sharding
from cost_model.memory.work import plan_work, stage_work
from cost_model.plans import Plan, PlanTable
from cost_model.prediction import MEMORY_CATEGORIES, MEMORY_PHASES
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec


@dataclass(frozen=True)
class Moment:
    """Bytes of one stage at one moment."""

    stage: int
    phase: str
    moment: str
    categories: dict[str, float]
    """Bytes by MEMORY_CATEGORIES."""

    @property
    def total(self) -> float:
        """Bytes that the driver sees."""
        return sum(self.categories.values())

    @property
    def allocated(self) -> float:
        """Bytes that the allocator hands out."""
        return self.total - self.categories["fragmentation"] - self.categories["framework"]


@dataclass(frozen=True)
class Detail:
    """The breakdown of one plan."""

    moments: tuple[Moment, ...]
    """Every stage at every moment, stages in order."""
    params: tuple[float, ...]
    """Parameters of each stage, over its TP and EP ranks divided."""
    reserved: tuple[float, ...]
    """Bytes of each stage that the caching allocator ends up holding where nothing presses it."""

    @property
    def allocated(self) -> tuple[float, ...]:
        """Peak bytes of each stage that the allocator hands out."""
        stages = len(self.params)
        return tuple(
            max(m.allocated for m in self.moments if m.stage == stage) for stage in range(stages)
        )

    @property
    def peak(self) -> Moment:
        """The moment that decides whether the plan fits."""
        return max(self.moments, key=lambda m: m.total)

    def phase(self, stage: int, phase: str) -> Moment:
        """The worst moment of a stage in a phase."""
        return max(
            (m for m in self.moments if m.stage == stage and m.phase == phase),
            key=lambda m: m.total,
        )


def detail(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    plan: Plan,
    coefficients: MemoryCoefficients | None = None,
) -> Detail:
    """Bytes by stage, phase and category, from the same formulas as the search uses."""
    known = (coefficients or default_memory_coefficients()).in_stack(training.stack)
    table = PlanTable.from_plans([plan] * plan.pp)
    shared = plan_work(known, model, training, table)
    stages = given_stages(model, table, np.arange(plan.pp))
    work = stage_work(model, training, table, shared, stages)
    states = sharding(known, model, training, table)
    nodes = [nodes_of_stage(cluster, plan, model.layers, stage) for stage in range(plan.pp)]
    room = np.array([tensor_bytes(known, one) for one in nodes])
    plans = placed(table, states, work, np.arange(plan.pp))
    found = footprint(plans, work, states.dense, states.expert, states.buffers, room)
    allocated = list(found.allocated(plans))
    frame = float(framework_bytes(known, table)[0])
    moments = []
    for stage in range(plan.pp):
        for number, name in enumerate(MOMENTS):
            parts = dict.fromkeys(MEMORY_CATEGORIES, 0.0)
            for source in ((found.static if number else {}), found.moments[number]):
                for category, value in source.items():
                    parts[category] += float(plans.bytes(value)[stage])
            parts["fragmentation"] = known.fragmentation * float(allocated[number][stage])
            parts["framework"] = frame
            phase = MEMORY_PHASES[PHASE_OF_MOMENT[number]]
            moments.append(Moment(stage, phase, name, parts))
    held = reserved(found, plans, states)
    ends_up = np.maximum(held, (1 + known.fragmentation) * np.maximum.reduce(allocated))
    return Detail(
        tuple(moments), tuple(float(p) for p in work.params), tuple(float(r) for r in ends_up)
    )
