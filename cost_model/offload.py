"""Offload: what PCIe, host memory, the CPU's Adam and flash cost a step."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.coefficients import HostCoefficients
from cost_model.plans import Bools, Floats, Offload, PlanTable
from cost_model.specs.cluster import ClusterSpec, Node
from cost_model.specs.training import TrainingSpec

_CPU_ADAM_BYTES = 28.0
"""Host bytes per updated parameter: gradient read (4), master and two moments read and written
(24; DeepSpeed CPUAdam, ZeRO-Offload arXiv 2101.06840)."""
_UNSCALE_BYTES = 8.0
"""Before it, the fp32 gradient is read and written once more to unscale and clip it
(stage_1_and_2.py and stage3.py, unscale_and_clip_grads)."""
_CAST_BYTES = 6.0
"""Stage 3 casts the updated master to 16 bits on the host: 4 read, 2 written."""
_STATE_BYTES = 12.0
"""Master and two moments, as they lie on flash; the fp32 gradient of 4 bytes lies beside them."""


@dataclass(frozen=True)
class OffloadTimes:
    """Exposed seconds of offload on one rank, and bytes over PCIe [plans]."""

    per_micro_batch: Floats
    per_step: Floats
    n_bytes: Floats


@dataclass(frozen=True)
class _Paths:
    """Bytes a second of one GPU's share of its node."""

    pcie: float
    host: float
    pageable: float
    """Between GPU and memory that is not pinned."""
    read: float
    """From flash; infinite without any."""
    write: float

    @classmethod
    def of(cls, node: Node, known: HostCoefficients) -> "_Paths":
        sockets = node.host_gb_per_s_per_socket * 1e9 * node.sockets
        host = min(sockets * known.memory_efficiency, node.cpu_cores * known.core_gb_per_s * 1e9)
        share = host / node.gpus_per_node
        flash = node.nvme
        return cls(
            # a copy also passes the host's memory
            pcie=min(node.pcie_gb_per_s * 1e9 * known.pcie_efficiency, share),
            host=share,
            pageable=min(known.pageable_gb_per_s * 1e9, share),
            read=np.inf if flash is None else flash.read_gb_per_s * 1e9 / node.gpus_per_node,
            write=np.inf if flash is None else flash.write_gb_per_s * 1e9 / node.gpus_per_node,
        )


def offload_times(
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    known: HostCoefficients,
    slowdown: float,
    sharded: Floats,
    trained: Floats,
    checkpoints: Floats,
    forward: Floats,
    backward: Floats,
) -> OffloadTimes:
    """Time that offload adds [plans].

    slowdown: share of hidden copies by which compute grows; sharded: parameters of which this rank
    keeps the shard; trained: those of them that are updated; checkpoints: bytes of layer inputs
    kept per micro-batch; forward, backward: seconds of a micro-batch that no other traffic covers.
    Gradients leave behind the backward pass; the update waits for the whole step, and its weights
    come back after it (ZeRO-Offload, arXiv 2101.06840, section 4). Parameters of stage 3 come in
    for both passes (ZeRO-Infinity, arXiv 2104.07857, section 5). All GPUs of a node share its
    sockets and flash.
    """
    optimizer = (table.offload_optimizer > int(Offload.NONE)) & (table.zero_stage > 0)
    params = (table.offload_param > int(Offload.NONE)) & (table.zero_stage == 3)
    if not (optimizer.any() or params.any() or table.cpu_checkpointing.any()):
        nothing = np.zeros(len(table))
        return OffloadTimes(nothing, nothing, nothing)
    paths = _Paths.of(cluster.node, known)
    element = 4.0 if training.precision == "fp32" else 2.0
    three = table.zero_stage == 3
    share = np.where(three, table.offload_ratio, 1.0)
    moved = np.where(optimizer, trained * share, 0.0)
    down = _gradient_copies(table, element, three) * moved
    weights = np.where(params, sharded * element, 0.0)
    # a partitioned input is copied at once, to memory that is not pinned and back (DeepSpeed,
    # checkpointing.py, partition_activations); a whole one leaves beside the pass, pinned
    parted = table.cpu_checkpointing & table.partition_activations
    kept = np.where(table.cpu_checkpointing & ~parted, checkpoints, 0.0)
    waited = np.where(parted, 2.0 * checkpoints / table.tp / paths.pageable, 0.0)
    fetch = weights / paths.pcie
    fetch = np.where(table.offload_param == int(Offload.NVME), fetch + weights / paths.read, fetch)
    per_micro = waited + _beside(fetch + kept / paths.pcie, forward, slowdown)
    per_micro = per_micro + _beside(fetch + (kept + down) / paths.pcie, backward, slowdown)
    per_step = _update_seconds(table, paths, moved, element, three)
    per_step = per_step + _beside(moved * 4.0 / paths.pcie, backward, slowdown)
    # the updated weights go back to where they are fetched from
    back = np.where(table.offload_param == int(Offload.NVME), weights / paths.write, 0.0)
    parked = np.where(parted, checkpoints / table.tp, kept)
    bytes_moved = table.grad_accum * (down + 2.0 * weights + 2.0 * parked)
    return OffloadTimes(per_micro, per_step + back, bytes_moved + moved * (4.0 + element))


def _gradient_copies(table: PlanTable, element: float, three: Bools) -> Floats:
    """Bytes per parameter and micro-batch that gradients move between GPU and host [plans].

    Stage 3 adds up on the GPU what lies in host memory: in and out, every time (stage3.py,
    partition_grads). Stages 1 and 2 do so from the second micro-batch on; where there is but one,
    the gradient leaves once, in fp32 (stage_1_and_2.py, async_accumulate_grad_in_cpu_via_gpu).
    """
    several = np.where(table.grad_accum > 1, 2.0 - 1.0 / table.grad_accum, 0.0)
    copies: Floats = np.where(three, 2.0, several) * element
    return copies


def _update_seconds(
    table: PlanTable, paths: _Paths, moved: Floats, element: float, three: Bools
) -> Floats:
    """The update on the host, its states from and to flash, the weights back on the GPU [plans].

    DeepSpeed reads a group's states, updates and writes them one after the other unless it is told
    to pipeline (partitioned_optimizer_swapper.py).
    """
    host = _CPU_ADAM_BYTES + _UNSCALE_BYTES + np.where(three, _CAST_BYTES, 0.0)
    back = np.where(three, element, 4.0)  # stages 1 and 2 send fp32 and cast on the GPU
    seconds = moved * (host / paths.host + back / paths.pcie)
    flash = three & (table.offload_optimizer == int(Offload.NVME))
    swap = (_STATE_BYTES + 4.0) * (1.0 / paths.read + 1.0 / paths.write)
    return np.where(flash, seconds + moved * swap, seconds)


def _beside(copies: Floats, compute: Floats, slowdown: float) -> Floats:
    """Seconds that copies add to compute beside them [plans]."""
    hidden = np.minimum(copies, compute)
    added: Floats = copies - hidden * (1.0 - slowdown)
    return added
