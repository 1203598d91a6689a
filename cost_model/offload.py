"""Offload: what PCIe, host memory, the CPU's Adam and flash cost a step."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.coefficients import HostCoefficients
from cost_model.plans import Floats, Offload, PlanTable
from cost_model.specs.cluster import ClusterSpec
from cost_model.specs.training import TrainingSpec

_CPU_ADAM_BYTES = 28.0
"""Host bytes per updated parameter: gradient read (4), master and two moments read and written
(24); the 16-bit copy goes out through PCIe (DeepSpeed CPUAdam, ZeRO-Offload arXiv 2101.06840)."""


@dataclass(frozen=True)
class OffloadTimes:
    """Exposed seconds of offload on one rank, and bytes over PCIe [plans]."""

    per_micro_batch: Floats
    per_step: Floats
    n_bytes: Floats


def offload_times(
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    known: HostCoefficients,
    sharded: Floats,
    trained: Floats,
    checkpoints: Floats,
    forward: Floats,
    backward: Floats,
) -> OffloadTimes:
    """Time that offload adds [plans].

    sharded: parameters of which this rank keeps the shard; trained: those of them that are
    updated; checkpoints: bytes of layer inputs kept per micro-batch. Gradients leave behind the
    backward pass; the update waits for the whole step, and its weights come back after it
    (ZeRO-Offload, arXiv 2101.06840, section 4). Parameters of stage 3 come in for both passes
    (ZeRO-Infinity, arXiv 2104.07857, section 5). All GPUs of a node share its sockets and flash.
    """
    optimizer = (table.offload_optimizer > Offload.NONE) & (table.zero_stage > 0)
    params = (table.offload_param > Offload.NONE) & (table.zero_stage == 3)
    if not (optimizer.any() or params.any() or table.cpu_checkpointing.any()):
        nothing = np.zeros(len(table))
        return OffloadTimes(nothing, nothing, nothing)
    node = cluster.node
    pcie = node.pcie_gb_per_s * 1e9 * known.pcie_efficiency
    host = (
        min(
            node.host_gb_per_s_per_socket * 1e9 * node.sockets * known.memory_efficiency,
            node.cpu_cores * known.core_gb_per_s * 1e9,
        )
        / node.gpus_per_node
    )
    element = 4.0 if training.precision == "fp32" else 2.0
    share = np.where(table.zero_stage == 3, table.offload_ratio, 1.0)
    moved = np.where(optimizer, trained * share, 0.0)
    gradients = moved * element / pcie
    exposed_gradients = np.maximum(gradients - backward, 0.0)
    update = moved * (_CPU_ADAM_BYTES / host + element / pcie)
    weights = np.where(params, sharded * element, 0.0)
    fetch = weights / pcie
    if node.nvme is not None:
        read = node.nvme.read_gb_per_s * 1e9 / node.gpus_per_node
        write = node.nvme.write_gb_per_s * 1e9 / node.gpus_per_node
        # states are read and written once per step, in a pipeline with the update
        states = np.where(table.offload_optimizer == Offload.NVME, moved * 12.0, 0.0)
        update = np.maximum(update, states * (1 / read + 1 / write))
        from_flash = table.offload_param == Offload.NVME
        fetch = np.where(from_flash, np.maximum(fetch, weights / read), fetch)
    kept = np.where(table.cpu_checkpointing, checkpoints / pcie, 0.0)
    per_micro = (
        np.maximum(fetch + kept - forward, 0.0)
        + np.maximum(fetch + kept - backward, 0.0)
        + exposed_gradients
    )
    bytes_moved = table.grad_accum * (
        moved * element + 2 * weights + 2 * np.where(table.cpu_checkpointing, checkpoints, 0.0)
    )
    return OffloadTimes(per_micro, update, bytes_moved + moved * element)
