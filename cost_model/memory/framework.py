"""What lies outside the allocator: CUDA context, kernels, NCCL communicators."""

import numpy as np

from cost_model.calibration.memory import GIB, MemoryCoefficients
from cost_model.plans import Floats, PlanTable, Software


def communicators(table: PlanTable) -> Floats:
    """NCCL communicators of one rank: the world's and one per axis that does not span it.

    DeepSpeed reduces over a clone of the world where data parallelism spans it (utils/groups.py).
    """
    world = table.world_size
    count = (world > 1).astype(np.float64)
    for degree in (table.tp, table.pp, table.dp, table.sp, table.cp, table.ep):
        if int(degree.max()) > 1:
            count += (degree > 1) & (degree < world)
    count += (
        (table.dp > 1) & (table.dp == world) & (table.software <= int(Software.MEGATRON_DEEPSPEED))
    )
    return count


def framework_bytes(coefficients: MemoryCoefficients, table: PlanTable) -> Floats:
    """Bytes that the driver reports and the allocator does not know of."""
    return GIB * (coefficients.context_gib + coefficients.communicator_gib * communicators(table))
