"""What depends on few columns of a plan: computed once per distinct combination."""

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from cost_model.collectives import Ring, Topology
from cost_model.compute import EdgeTimes, LayerTimes, Rates, edge_times, layer_times
from cost_model.memory.groups import Groups, group_rows
from cost_model.plans import Floats, PlanTable
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec
from cost_model.traffic import LayerTraffic, edge_traffic, layer_traffic, pipeline_hop_seconds

_SHAPE = (
    "software",
    "tp",
    "sequence_parallel",
    "sp",
    "cp",
    "cp_all_gather",
    "ep",
    "micro_batch",
    "compile",
    "tp_overlap",
    "split_hand_over",
    "chunked_loss",
    "capacity_factor",
)
"""Columns that decide the shape of a rank's work and of its traffic within a layer."""


@dataclass(frozen=True)
class Shapes:
    """Times of one micro-batch by the shape of a rank's work. Arrays are [shapes]."""

    groups: Groups
    """Which shape each plan has."""
    layers: tuple[LayerTimes, ...]
    """By kind of layer."""
    traffic: tuple[LayerTraffic, ...]
    """By kind of layer."""
    edges: EdgeTimes
    embedding_comm: Floats
    """Seconds of tensor-parallel traffic of the embedding."""
    head_comm: Floats
    hop: Floats
    """Seconds of handing one micro-batch to the next stage."""
    hop_bytes: Floats


def shapes_of(
    model: ModelSpec,
    training: TrainingSpec,
    table: PlanTable,
    rates: Rates,
    topology: Topology,
    differs: Container[str],
) -> Shapes:
    """The distinct shapes of a table, evaluated. differs: columns that do not hold one value."""
    piped = table.pp > 1
    remote = table.dp * table.tp * table.sp * table.cp >= topology.gpus_per_node
    groups = group_rows(table, _SHAPE, differs, piped, remote)
    distinct = table.take(groups.first)
    ring = Ring.of(topology, distinct.tp, np.ones_like(distinct.tp))
    layers = tuple(layer_times(model, kind, training, distinct, rates) for kind in model.kinds)
    traffic = tuple(
        layer_traffic(model, kind, training, distinct, topology, ring, times)
        for kind, times in zip(model.kinds, layers, strict=True)
    )
    hop, hop_bytes = pipeline_hop_seconds(model, training, distinct, topology, ring)
    edges = edge_times(model, training, distinct, rates)
    embedding_comm, head_comm = edge_traffic(model, training, distinct, ring)
    return Shapes(groups, layers, traffic, edges, embedding_comm, head_comm, hop, hop_bytes)
