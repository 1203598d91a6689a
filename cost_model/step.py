"""Step time: every part put together."""

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.calibration.memory import default_memory_coefficients
from cost_model.collectives import Topology
from cost_model.compute import Rates
from cost_model.compute.optimizer import update_seconds
from cost_model.flops import forward_flops, step_flops, trainable_share
from cost_model.memory.precision import gradient_bytes
from cost_model.offload import offload_times
from cost_model.pipeline import bubble_seconds, hand_over_seconds
from cost_model.plans import Floats, Ints, Offload, PlanTable, Software
from cost_model.prediction import STEP_PARTS, StepPrediction
from cost_model.replicas import data_parallel
from cost_model.shapes import shapes_of
from cost_model.specs.cluster import ClusterSpec
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec
from cost_model.stages import software_column, stage_times


def accumulate_bytes(training: TrainingSpec, software: Ints) -> Floats:
    """Bytes per parameter of adding one micro-batch's gradient to the others' [plans].

    The new gradient is read, the sum read and written. Megatron's weight products add to fp32
    sums themselves, and write no 16-bit gradient first.
    """
    known = default_memory_coefficients()
    element = 4.0 if training.precision == "fp32" else 2.0
    held = [gradient_bytes(known.of(s).gradient_bytes, training) for s in Software]
    each = np.array([element + 2.0 * g for g in held])
    each[Software.MEGATRON] = 2.0 * held[Software.MEGATRON] - element
    return each.take(software)


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
    known = coefficients or Coefficients.default()
    rates = Rates.of(cluster.node.gpu, training, known)
    topology = Topology.of(cluster, known)
    shapes = shapes_of(model, training, table, rates, topology)
    runs_ahead = cluster.node.gpu.generation != "cpu"
    stage = stage_times(model, training, table, shapes, known, runs_ahead)

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
    updated = own * (trained * _kept_on_gpu(table))
    optimizer = update_seconds(updated, training, rates.bytes_per_s, rates.gemm_flops)
    optimizer = optimizer * rates.gpu.update_slowdown
    tokens = table.micro_batch * training.seq_len / (table.sp * table.cp)
    inputs = tokens * layers * (model.hidden * rates.element_bytes)
    moved = offload_times(
        cluster,
        training,
        table,
        known.host,
        rates.gpu.comm_slowdown,
        own,
        own * trained,
        inputs,
        replicas.spare_forward,
        replicas.spare_backward,
    )
    adds = (table.grad_accum > 1) & (table.zero_stage < 2)
    accumulate = (dense + expert) * adds * (trained / rates.bytes_per_s)
    accumulate = accumulate * accumulate_bytes(training, table.software)

    fixed = software_column(known, "micro_batch_ms", table.software) * 1e-3 * m
    fixed = fixed + software_column(known, "step_ms", table.software) * 1e-3
    parts: dict[str, Floats] = {
        "compute": m * (spread(stage.compute) + accumulate),
        "recompute": m * spread(stage.recompute),
        "tp_comm": m * spread(stage.tp_comm),
        "sp_comm": m * spread(stage.sp_comm),
        "ep_comm": m * spread(stage.ep_comm),
        "pp_comm": m * hand_over_seconds(hop, table.vpp, table.software == Software.MEGATRON),
        "bubble": bubble_seconds(spread(stage.total), spread(stage.slowest), table.vpp)
        + (table.pp - 1) * hop,
        "dp_comm": m * replicas.per_micro_batch + replicas.per_step,
        "optimizer": optimizer,
        "offload": m * moved.per_micro_batch + moved.per_step,
        "overhead": m * spread(stage.overhead) + fixed,
    }
    seconds = np.zeros(len(table))
    for name in STEP_PARTS:
        seconds = seconds + parts[name]
    nodes = np.maximum(table.world_size / cluster.node.gpus_per_node, 1.0)
    wait = seconds * software_column(known, "straggle", table.software) * np.log2(nodes)
    parts["overhead"] = parts["overhead"] + wait
    seconds = seconds + wait

    sequences = m * (table.micro_batch * table.dp)
    flops: Floats = sequences * step_flops(model, training)
    repeated = sequences * spread(stage.repeated) * sum(forward_flops(model, training))
    capacity = table.world_size * seconds * rates.peak_flops
    return StepPrediction(
        seconds=seconds,
        parts=parts,
        model_flops=flops,
        mfu=flops / capacity,
        hfu=(flops + repeated) / capacity,
        traffic_bytes={
            "tp_comm": m * spread(stage.tp_bytes),
            "sp_comm": m * spread(stage.sp_bytes),
            "ep_comm": m * spread(stage.ep_bytes),
            "pp_comm": m * table.vpp * spread(stage.hop_bytes),
            "dp_comm": replicas.n_bytes,
            "offload": moved.n_bytes,
        },
    )


def _kept_on_gpu(table: PlanTable) -> Floats:
    """Share of a rank's update that the GPU does [plans]; stage 3 may offload a part."""
    away = (table.offload_optimizer > Offload.NONE) & (table.zero_stage > 0)
    rest = np.where(table.zero_stage == 3, 1.0 - table.offload_ratio, 0.0)
    kept: Floats = np.where(away, rest, 1.0)
    return kept
