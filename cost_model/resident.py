"""The step of plans as if nothing were offloaded."""

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.calibration.columns import software_column
from cost_model.calibration.memory import default_memory_coefficients
from cost_model.collectives import Topology, point_to_point_seconds
from cost_model.compute import Rates
from cost_model.compute.optimizer import update_seconds
from cost_model.flops import forward_flops, step_flops, trainable_share
from cost_model.memory.profile import gradient_column
from cost_model.pipeline import bubble_seconds, hand_over_seconds, uncovered_hand_over
from cost_model.plans import Floats, Ints, PlanTable, Software, any_of
from cost_model.replicas import data_parallel
from cost_model.shapes import shapes_of
from cost_model.specs.cluster import ClusterSpec
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec
from cost_model.stages import StageTimes, stage_times
from cost_model.traffic import hand_overs


@dataclass(frozen=True)
class Resident:
    """The step of plans as if nothing were offloaded. Arrays are [plans]."""

    parts: dict[str, Floats]
    """Seconds; the update is all on the GPU, what waits for other nodes is not in yet."""
    traffic_bytes: dict[str, Floats]
    straggle: Floats
    """Growth of the step by the nodes that wait for each other."""
    flops: Floats
    repeated_flops: Floats
    flops_per_s: Floats
    """Peak of all GPUs."""
    own: Floats
    """Parameters that a rank updates, or keeps at stage 3."""
    inputs: Floats
    """Bytes of layer inputs that it keeps of a micro-batch."""
    spare_forward: Floats
    spare_backward: Floats
    passing: "Passing | None" = None
    """Of the stages on one group of nodes, where only those are looked at."""


@dataclass(frozen=True)
class Passing:
    """One micro-batch that passes the stages on one group of nodes [plans]."""

    through: Floats
    """Seconds through all of them, hand-overs apart."""
    far_hop: Floats
    """Seconds of handing it on to another node and its gradient back."""

    def take(self, rows: Ints) -> "Passing":
        """The plans of an index array."""
        return Passing(self.through.take(rows), self.far_hop.take(rows))


def accumulate_bytes(training: TrainingSpec, software: Ints) -> Floats:
    """Bytes per parameter of adding one micro-batch's gradient to the others' [plans].

    The new gradient is read, the sum read and written. Megatron's weight products add to fp32
    sums themselves, and write no 16-bit gradient first.
    """
    known = default_memory_coefficients()
    element = 4.0 if training.precision == "fp32" else 2.0
    held = gradient_column(known, training, np.arange(len(Software)))
    each = element + 2.0 * held
    each[Software.MEGATRON] = 2.0 * held[Software.MEGATRON] - element
    return each.take(software)


def resident_step(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    known: Coefficients,
    rates: Rates,
    differs: Container[str],
    node_group: int | None = None,
) -> Resident:
    """Every part of the step but offload [plans]; `table` is best one row per plan that differs in
    more than what is offloaded. differs: the columns that do not hold one value alone; node_group:
    number of the group of nodes whose stages alone are looked at."""
    topology = Topology.of(cluster, known)
    shapes = shapes_of(model, cluster, training, table, known, rates, topology, differs)
    runs_ahead = cluster.node.gpu.generation != "cpu"
    stage = stage_times(model, training, table, shapes, known, differs, runs_ahead, node_group)

    def spread(values: Floats) -> Floats:
        return values.take(stage.groups.of_row)

    m = table.grad_accum.astype(float)
    trained = trainable_share(model, training)
    dense, expert, layers = spread(stage.dense), spread(stage.expert), spread(stage.layers)
    forward, backward, hop = spread(stage.forward), spread(stage.backward), spread(stage.hop)
    replicas = data_parallel(
        training,
        table,
        topology,
        known,
        rates.gpu.comm_slowdown,
        dense,
        expert,
        layers,
        forward,
        backward,
        trained,
    )
    shard = np.where(table.zero_stage > 0, table.zero_group, 1)
    own = dense / shard + expert / np.maximum(shard // table.ep, 1)
    optimizer = update_seconds(own * trained, training, rates.bytes_per_s, rates.gemm_flops)
    optimizer = optimizer * rates.gpu.update_slowdown
    tokens = table.micro_batch * training.seq_len / (table.sp * table.cp)
    inputs = tokens * layers * (model.hidden * rates.element_bytes)
    # A gradient cut over a group is added shard by shard; one that nobody shares is added whole.
    whole = (table.zero_stage < 2) | (table.zero_group == 1)
    adds = (table.grad_accum > 1) & whole
    accumulate = (dense + expert) * adds * (trained / rates.bytes_per_s)
    accumulate = accumulate * accumulate_bytes(training, table.software)

    beside = software_column(known, "hand_over_beside", table.software)
    left = uncovered_hand_over(hop, beside * forward, beside * backward)

    fixed = software_column(known, "micro_batch_ms", table.software) * 1e-3 * m
    fixed = fixed + software_column(known, "step_ms", table.software) * 1e-3
    parts: dict[str, Floats] = {
        "compute": m * (spread(stage.compute) + accumulate),
        "recompute": m * spread(stage.recompute),
        "tp_comm": m * spread(stage.tp_comm),
        "sp_comm": m * spread(stage.sp_comm),
        "ep_comm": m * spread(stage.ep_comm),
        "pp_comm": m
        * hand_over_seconds(left, table.vpp, any_of(table.software, Software.MEGATRON)),
        "bubble": bubble_seconds(spread(stage.total), spread(stage.slowest), table.vpp)
        + (table.pp - 1) * hop,
        "dp_comm": m * replicas.per_micro_batch + replicas.per_step,
        "optimizer": optimizer,
        "offload": np.zeros(len(table)),
        "overhead": m * spread(stage.overhead) + fixed,
    }
    nodes = np.maximum(table.world_size / cluster.node.gpus_per_node, 1.0)
    sequences = m * (table.micro_batch * table.dp)
    flops: Floats = sequences * step_flops(model, training)
    repeated = sequences * spread(stage.repeated) * sum(forward_flops(model, training))
    return Resident(
        parts=parts,
        traffic_bytes={
            "tp_comm": m * spread(stage.tp_bytes),
            "sp_comm": m * spread(stage.sp_bytes),
            "ep_comm": m * spread(stage.ep_bytes),
            "pp_comm": m * table.vpp * spread(stage.hop_bytes),
            "dp_comm": replicas.n_bytes,
            "offload": parts["offload"],
        },
        straggle=software_column(known, "straggle", table.software) * np.log2(nodes),
        flops=flops,
        repeated_flops=repeated,
        flops_per_s=table.world_size.astype(float) * rates.peak_flops,
        own=own,
        inputs=inputs,
        spare_forward=replicas.spare_forward,
        spare_backward=replicas.spare_backward,
        passing=None if node_group is None else _passing(table, topology, stage),
    )


def _passing(table: PlanTable, topology: Topology, stage: StageTimes) -> Passing:
    """What the other groups of nodes wait for; hop_bytes of a stage are those of both ways."""
    of_row = stage.groups.of_row
    remote = np.full(len(table), topology.gpus_per_node)
    far = point_to_point_seconds(topology, stage.hop_bytes.take(of_row) / 2.0, remote)
    return Passing(stage.total.take(of_row), hand_overs(table) * far)
