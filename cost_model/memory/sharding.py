"""How the states of a table of plans are sharded: one row for each combination that occurs."""

from dataclasses import dataclass, replace

import numpy as np

from cost_model.calibration.memory import GIB, MemoryCoefficients
from cost_model.memory.buffers import Buffers, buffers
from cost_model.memory.engines import Engines, engines
from cost_model.memory.groups import group_rows
from cost_model.memory.profile import by_software
from cost_model.memory.states import Rates, state_rates
from cost_model.memory.sub_groups import reached_share
from cost_model.memory.sums import Plans
from cost_model.memory.work import StageWork
from cost_model.plans import Bools, Floats, Ints, Offload, PlanTable, Software, any_of
from cost_model.specs import ModelSpec, TrainingSpec

SHARDING = (
    "software",
    "zero_stage",
    "ep",
    "offload_optimizer",
    "offload_param",
    "offload_ratio",
    "overlap_comm",
    "reduce_bucket",
    "max_live_params",
    "hpz",
)
"""Columns of a plan that its sharding depends on, beside ranks, accumulation and pipeline."""


@dataclass(frozen=True)
class Sharding:
    """Distinct shardings [shardings]."""

    dense: Rates
    expert: Rates | None
    """None where the model has no experts."""
    buffers: Buffers
    growth: Floats
    """What the allocator caches beyond what a step allocates and frees, as a share."""
    floor: Floats
    """The same in bytes, whatever a step takes."""
    of_plan: Ints
    """The sharding of each plan [plans]."""


def sharding(
    coefficients: MemoryCoefficients, model: ModelSpec, training: TrainingSpec, table: PlanTable
) -> Sharding:
    """Computed once per combination of the columns it depends on."""
    more: list[Ints | Bools] = [table.grad_accum > 1]
    if not table.varying.isdisjoint(("dp", "sp", "cp")):
        more += [table.zero_group, table.sp * table.cp > 1]
    if not table.varying.isdisjoint(("software", "pp")):
        more += [table.pipelined, table.pp > 1]
    groups = group_rows(table, SHARDING, table.varying, *more)
    few = table.take(groups.first)
    engine = engines(coefficients, training, few)
    over = few.zero_group.astype(np.float64)
    expert = None
    if model.is_moe and training.lora is None:
        experts = np.maximum(over / few.ep, 1.0)
        expert = state_rates(coefficients, training, few, engine, experts)
        expert = _reaching(model, training, few, engine, experts, expert)
    return Sharding(
        dense=state_rates(coefficients, training, few, engine, over),
        expert=expert,
        buffers=buffers(coefficients, training, few, engine),
        growth=by_software(coefficients, few.software, "cache_growth"),
        floor=GIB * by_software(coefficients, few.software, "cache_floor_gib"),
        of_plan=groups.of_row,
    )


def _reaching(
    model: ModelSpec,
    training: TrainingSpec,
    few: PlanTable,
    engine: Engines,
    ranks: Floats,
    expert: Rates,
) -> Rates:
    """The same where experts lie over ranks, with their gradients as ZeRO 1 and 2 keep them."""
    mine = engine.partitioned & (few.ep > 1) & (few.offload_optimizer == Offload.NONE)
    if training.fp32_grad_accum or not mine.any():
        return expert
    matrix = max(model.hidden * kind.moe.intermediate for kind in model.kinds if kind.moe)
    share = np.where(mine, reached_share(matrix, ranks), 1.0)
    freed = np.where(engine.frees, share, 1.0)
    return replace(
        expert,
        gradients=expert.gradients * freed,
        gradients_growing=expert.gradients_growing * freed,
        gradients_at_step=expert.gradients_at_step * share,
    )


def placed(table: PlanTable, states: Sharding, work: StageWork, of_work: Ints) -> Plans:
    """The plans of a table by their work and their sharding.

    of_work: the row of `work` of each plan [plans]. AutoTP under ZeRO-3 leaves what it does not cut
    partitioned over all ranks, as zero.Init had it: TP ranks hold parts of embeddings, head and
    norms, not copies (auto_tp.py _gather_zero3_params).
    """
    plans = Plans(work.quantities(), of_work, states.of_plan)
    if work.replicated.any():
        over_all = any_of(table.software, Software.DEEPSPEED) & (table.zero_stage == 3)
        if over_all.any():
            less = over_all * plans.quantity("replicated")
            plans.replace("dense", plans.quantity("dense") - less)
    return plans
