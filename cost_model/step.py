"""Step time: every part put together.

What offload changes is apart from the rest: plans that differ in nothing else share all other
terms, which are computed once for each of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.compute import Rates
from cost_model.flops import trainable_share
from cost_model.memory.groups import group_rows, varying
from cost_model.offload import OffloadTimes, offload_times
from cost_model.over_groups import GroupStep, step_over_groups
from cost_model.plans import Floats, Ints, Offload, PlanTable
from cost_model.prediction import STEP_PARTS, StepPrediction
from cost_model.resident import Resident, resident_step
from cost_model.specs.cluster import ClusterSpec
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec

_APART = frozenset(
    {
        "nodes",
        "partition_activations",
        "cpu_checkpointing",
        "offload_optimizer",
        "offload_param",
        "offload_ratio",
        "max_live_params",
        "persistence_threshold",
    }
)
"""Columns that only offload or memory reads."""
_SHARED = tuple(f.name for f in fields(PlanTable) if f.name not in _APART)


class Gathered(Mapping[str, Floats]):
    """Columns by name, kept once for plans that share them and gathered when they are read."""

    def __init__(self, shared: Mapping[str, Floats], of_row: Ints, own: Mapping[str, Floats]):
        self._shared, self._of_row, self._own = shared, of_row, own

    def __getitem__(self, name: str) -> Floats:
        own = self._own.get(name)
        return self._shared[name].take(self._of_row) if own is None else own

    def __iter__(self) -> Iterator[str]:
        return iter(self._shared)

    def __len__(self) -> int:
        return len(self._shared)


def step_time(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: Coefficients | None = None,
) -> StepPrediction:
    """Seconds of one optimizer step of each plan, by part.

    A step is m micro-batches through the slowest stage, the wait for the other stages, then what
    happens once: gradient reduction that found nothing to hide behind, the update, the gather of
    updated weights. Coefficients default to the shipped set.
    """
    known = (coefficients or Coefficients.default()).of_stack(training.stack)

    def one(own: ClusterSpec, few: PlanTable, node_group: int | None) -> GroupStep:
        return _step(model, own, training, few, known, node_group)

    if cluster.groups or table.placement.any():
        return step_over_groups(cluster, model.layers, table, one)
    return one(cluster, table, None).step


def _step(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    known: Coefficients,
    node_group: int | None,
) -> GroupStep:
    """The step of the stages on one group of nodes; of all stages where that is None."""
    rates = Rates.of(cluster.node.gpu, training, known)
    differs = varying(table, _SHARED)
    groups = group_rows(table, _SHARED, differs)
    distinct = table.take(groups.first)
    resident = resident_step(model, cluster, training, distinct, known, rates, differs, node_group)
    of_row = groups.of_row
    moved = _offload(model, cluster, training, table, known, rates, resident, of_row)

    whole = np.zeros(groups.count)
    for name in STEP_PARTS:
        if name not in ("optimizer", "offload"):
            whole = whole + resident.parts[name]
    update = resident.parts["optimizer"].take(of_row) * _kept_on_gpu(table)
    offload = table.grad_accum * moved.per_micro_batch + moved.per_step
    seconds = whole.take(of_row) + update + offload
    wait = seconds * resident.straggle.take(of_row)
    seconds = seconds + wait
    overhead = resident.parts["overhead"].take(of_row) + wait
    capacity = seconds * resident.flops_per_s.take(of_row)
    flops = resident.flops.take(of_row)
    step = StepPrediction(
        seconds=seconds,
        parts=Gathered(
            resident.parts,
            of_row,
            {"optimizer": update, "offload": offload, "overhead": overhead},
        ),
        model_flops=flops,
        mfu=flops / capacity,
        hfu=(flops + resident.repeated_flops.take(of_row)) / capacity,
        traffic_bytes=Gathered(resident.traffic_bytes, of_row, {"offload": moved.n_bytes}),
    )
    return GroupStep(step, resident.passing and resident.passing.take(of_row))


def _offload(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    known: Coefficients,
    rates: Rates,
    resident: Resident,
    of_row: Ints,
) -> OffloadTimes:
    own = resident.own.take(of_row)
    return offload_times(
        cluster,
        training,
        table,
        known.host,
        rates.gpu.comm_slowdown,
        own,
        own * trainable_share(model, training),
        resident.inputs.take(of_row),
        resident.spare_forward.take(of_row),
        resident.spare_backward.take(of_row),
    )


def _kept_on_gpu(table: PlanTable) -> Floats:
    """Share of a rank's update that the GPU does [plans]; stage 3 may offload a part."""
    away = (table.offload_optimizer > int(Offload.NONE)) & (table.zero_stage > 0)
    rest = np.where(table.zero_stage == 3, 1.0 - table.offload_ratio, 0.0)
    kept: Floats = np.where(away, rest, 1.0)
    return kept
