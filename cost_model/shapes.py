"""What depends on few columns of a plan: computed once per distinct combination."""

from collections.abc import Container
from dataclasses import dataclass, fields
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.calibration.same import Same
from cost_model.collectives import Ring, Topology
from cost_model.compute import EdgeTimes, LayerTimes, Rates, edge_times, layer_times
from cost_model.memory.groups import group_rows
from cost_model.plans import Floats, Ints, PlanTable
from cost_model.specs.cluster import ClusterSpec
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
class ShapeTimes:
    """Times of one micro-batch by the shape of a rank's work. Arrays are [shapes]."""

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


@dataclass(frozen=True)
class Shapes:
    """The shapes of a table."""

    of_row: Ints
    """Which shape each plan has."""
    distinct: int
    """How many shapes the plans have."""
    times: ShapeTimes
    """Of these shapes, and maybe more."""


class _Known:
    """Shapes evaluated so far: a search has few, and asks for them with every table."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.number: dict[tuple[float, ...], int] = {}
        self.times: ShapeTimes | None = None


@lru_cache(maxsize=8)
def _known_of(
    model: Same[ModelSpec],
    training: Same[TrainingSpec],
    cluster: Same[ClusterSpec],
    coefficients: Same[Coefficients],
) -> _Known:
    return _Known()


def shapes_of(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: Coefficients,
    rates: Rates,
    topology: Topology,
    differs: Container[str],
) -> Shapes:
    """The distinct shapes of a table, evaluated. differs: columns that do not hold one value."""
    piped = table.pp > 1
    distance = table.dp * table.tp * table.sp * table.cp  # to the next stage, in ranks
    reach = (distance >= topology.gpus_per_node).astype(np.int64) + (distance >= topology.island)
    groups = group_rows(table, _SHAPE, differs, piped, reach)
    columns = (*(getattr(table, name) for name in _SHAPE), piped, reach)
    keys = list(zip(*(c.take(groups.first).tolist() for c in columns), strict=True))
    known = _known_of(Same(model), Same(training), Same(cluster), Same(coefficients))
    with known.lock:
        new = [row for row, key in enumerate(keys) if key not in known.number]
        if new or known.times is None:
            few = table.take(groups.first.take(new))
            times = _evaluated(model, training, few, rates, topology)
            known.times = times if known.times is None else _below(known.times, times)
            known.number |= {keys[row]: len(known.number) + n for n, row in enumerate(new)}
        number = np.array([known.number[key] for key in keys], np.int64)
        return Shapes(number.take(groups.of_row), groups.count, known.times)


def _evaluated(
    model: ModelSpec, training: TrainingSpec, distinct: PlanTable, rates: Rates, topology: Topology
) -> ShapeTimes:
    ring = Ring.of(topology, distinct.tp, np.ones_like(distinct.tp))
    layers = tuple(layer_times(model, kind, training, distinct, rates) for kind in model.kinds)
    traffic = tuple(
        layer_traffic(model, kind, training, distinct, topology, ring, times)
        for kind, times in zip(model.kinds, layers, strict=True)
    )
    hop, hop_bytes = pipeline_hop_seconds(model, training, distinct, topology, ring)
    edges = edge_times(model, training, distinct, rates)
    embedding_comm, head_comm = edge_traffic(model, training, distinct, ring)
    return ShapeTimes(layers, traffic, edges, embedding_comm, head_comm, hop, hop_bytes)


T = TypeVar("T")


def _below(first: T, second: T) -> T:
    """The arrays of both, one below the other."""
    one: Any = first
    other: Any = second
    if isinstance(one, np.ndarray):
        joined: Any = np.concatenate([one, other])
    elif isinstance(one, tuple):
        joined = tuple(_below(a, b) for a, b in zip(one, other, strict=True))
    else:
        names = (f.name for f in fields(one))
        joined = type(one)(**{n: _below(getattr(one, n), getattr(other, n)) for n in names})
    return joined  # type: ignore[no-any-return]
