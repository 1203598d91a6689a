"""What the nodes have for a plan: GPU memory, host RAM, flash."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import GIB
from cost_model.plans import Floats
from cost_model.prediction import MemoryPrediction, Need
from cost_model.specs import ClusterSpec, Node


@dataclass(frozen=True)
class Capacity:
    """Bytes of one GPU and of one node: one number for all plans, or one a plan [plans]."""

    gpu: Floats | float
    host: Floats | float
    flash: Floats | float

    @classmethod
    def of(cls, cluster: ClusterSpec, memory: MemoryPrediction | Need) -> "Capacity":
        """Where the prediction is of a group of unequal nodes, what those nodes have."""
        if memory.node_group is None:
            return cls(*_bytes(cluster.node))
        nodes = [cluster.node, *(group.node for group in cluster.groups)]
        rows = memory.node_group + 1
        return cls(*np.array([_bytes(node) for node in nodes]).T[:, rows])


def _bytes(node: Node) -> tuple[float, float, float]:
    flash = 0.0 if node.nvme is None else node.nvme.capacity_gib
    return node.gpu.memory_gib * GIB, node.host_ram_gib * GIB, flash * GIB
