"""What a table of plans takes of the nodes' host memory and NVMe."""

from collections.abc import Sequence

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.host import Away, host_bytes, offloaded_bytes
from cost_model.memory.sharding import Sharding
from cost_model.memory.sums import Plans
from cost_model.memory.work import StageWork
from cost_model.plans import Floats, Offload, PlanTable
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec


def beside(
    coefficients: MemoryCoefficients,
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    states: Sharding,
    works: Sequence[tuple[StageWork, Plans]],
) -> tuple[Floats, Floats]:
    """Host and NVMe bytes of one node of each plan, of its fullest stage [plans]."""
    ranks = np.minimum(table.world_size, cluster.node.gpus_per_node).astype(np.float64)
    offloaded, checkpoints, nvme = np.zeros((3, len(table)))
    for work, plans in works:
        if work.on_host.any():
            np.maximum(checkpoints, work.on_host.take(plans.of_work), out=checkpoints)
    some = (table.offload_optimizer > 0) | (table.offload_param > 0)
    rows = np.flatnonzero(some & (table.zero_stage > 0))
    if len(rows):
        for work, plans in works:
            host, flash = offloaded_bytes(training, _away(table, states, work, plans, rows))
            offloaded[rows] = np.maximum(offloaded[rows], host)
            nvme[rows] = np.maximum(nvme[rows], flash)
    host = host_bytes(coefficients, model, training, table, offloaded, checkpoints, ranks)
    return host, nvme * ranks


def _away(
    table: PlanTable,
    states: Sharding,
    work: StageWork,
    plans: Plans,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
) -> Away:
    def of(values: Floats) -> Floats:
        if len(values) == 1:
            return np.broadcast_to(values, rows.shape)
        return values.take(rows)

    def elements(name: str) -> tuple[Floats, Floats]:
        dense = of(plans.sharding(getattr(states.dense, name))) * of(plans.quantity("dense"))
        if states.expert is None:
            return dense, np.zeros(1)
        rate = of(plans.sharding(getattr(states.expert, name)))
        return dense, rate * of(plans.quantity("expert"))

    return Away(
        three=table.zero_stage.take(rows) == 3,
        optimizer_on_flash=table.offload_optimizer.take(rows) == int(Offload.NVME),
        weights_on_flash=table.offload_param.take(rows) == int(Offload.NVME),
        ranks=table.zero_group.take(rows),
        optimizer=elements("away"),
        weights=elements("weights_away"),
        matrix=of(plans.quantity("matrix")),
    )
