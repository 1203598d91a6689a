"""What the cost model says of tables of plans, as the scores that rank them."""

from collections.abc import Iterable, Iterator

import numpy as np

from cost_model.memory import fits_probability, need
from cost_model.memory.capacity import Capacity
from cost_model.plans import BLOCK, Bools, Floats, PlanTable
from cost_model.predict import predict
from cost_model.prediction import MemoryPrediction, Need, Prediction
from cost_model.step import step_time
from planner.candidate import GIB
from planner.objectives import Scores, acceptable
from planner.request.request import Resolved
from planner.rows import join
from planner.rules import World

WAITS = 1.5
"""More than a second of traffic can cost where every rank waits for the slowest: the cost model
adds a share of the step for each doubling of the nodes, below a tenth in all."""


def evaluate(world: World, table: PlanTable) -> Prediction:
    """Memory and time of every plan of a table."""
    return predict(
        world.model,
        world.cluster,
        world.training,
        table,
        world.coefficients,
        world.memory_coefficients,
    )


def held(world: World, table: PlanTable) -> Scores:
    """Memory alone; the step time is unknown (0)."""
    if not len(table):
        return sure(0)
    known = world.memory_coefficients
    found = need(world.model, world.cluster, world.training, table, known)
    chance = fits_probability(found, world.cluster, known)
    return Scores(np.zeros(len(table)), *_as_on_one(world, found), chance)


def _as_on_one(world: World, found: Need | MemoryPrediction) -> tuple[Floats, Floats]:
    """GPU and host bytes, such that the cluster's own node lacks as many as the worst rank's.

    Where groups of nodes differ, each plan is measured against the group of its worst rank.
    """
    if found.node_group is None:
        return found.total_bytes, found.host_bytes
    node, there = world.cluster.node, Capacity.of(world.cluster, found)
    gpu = found.total_bytes - (there.gpu - node.gpu.memory_gib * GIB)
    return gpu, found.host_bytes - (there.host - node.host_ram_gib * GIB)


def timed(world: World, table: PlanTable, scores: Scores) -> tuple[Scores, Floats]:
    """The same with step times; and the seconds that no setting of the fine knobs beats [plans].

    Buckets change gradient traffic alone, and the offload ratio what offload adds.
    """
    if not len(table):
        return scores, scores.seconds
    step = step_time(world.model, world.cluster, world.training, table, world.coefficients)
    movable = WAITS * (step.parts["dp_comm"] + step.parts["offload"])
    least = np.maximum(step.seconds - movable, 0.0)
    known = Scores(step.seconds, scores.total_bytes, scores.host_bytes, scores.fits_probability)
    return known, least


def sure(n: int) -> Scores:
    """Scores of plans that would fit for certain; times unknown."""
    return Scores(np.zeros(n), np.zeros(n), np.zeros(n), np.ones(n))


def scores_of(world: World, prediction: Prediction) -> Scores:
    """What ranks plans, from their full prediction."""
    found = prediction.memory
    sizes = _as_on_one(world, found)
    return Scores(prediction.step.seconds, *sizes, prediction.fits_probability)


def accepted(resolved: Resolved, table: PlanTable) -> Bools:
    """Whether each plan fits as the request demands [plans]."""
    return acceptable(resolved.world, resolved.search, held(resolved.world, table))


def missing_bytes(world: World, scores: Scores, headroom: float = 0.0) -> Floats:
    """Bytes that a plan misses on the worst rank and on its host; 0 where both suffice [plans].

    headroom: bytes that must stay free on the GPU.
    """
    gpu = scores.total_bytes - world.cluster.node.gpu.memory_gib * GIB + headroom
    host = scores.host_bytes - world.cluster.node.host_ram_gib * GIB
    missing: Floats = np.maximum(gpu, 0.0) + np.maximum(host, 0.0)
    return missing


def blocks(table: PlanTable) -> Iterator[PlanTable]:
    """The table in slices of BLOCK rows."""
    for start in range(0, len(table), BLOCK):
        yield table.take(slice(start, start + BLOCK))


def in_blocks(tables: Iterable[PlanTable]) -> Iterator[PlanTable]:
    """Tables cut and joined to BLOCK rows: many small ones cost as many calls as one large."""
    waiting: list[PlanTable] = []
    size = 0
    for table in tables:
        for part in blocks(table):
            if size + len(part) > BLOCK:
                yield join(waiting)
                waiting, size = [], 0
            waiting.append(part)
            size += len(part)
    if size:
        yield join(waiting)
