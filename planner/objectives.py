"""What the best plan is: one key per objective, lower is better."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cost_model.plans import Bools, Floats, Ints, PlanTable
from planner.candidate import GIB, SECONDS_PER_DAY, Candidate
from planner.request.search import SearchOptions
from planner.rules import World

Keys = tuple[Floats | Ints, ...]
"""Sort keys, the most important first [plans] each."""


@dataclass(frozen=True)
class Scores:
    """What ranks a plan [plans] each."""

    seconds: Floats
    total_bytes: Floats
    host_bytes: Floats
    fits_probability: Floats


NOISE = 9
"""Decimals of a second beyond which two step times are the same: plans that differ in nothing that
costs time are ranked by simplicity, not by how a sum was rounded."""


def expected_seconds(search: SearchOptions, scores: Scores) -> Floats:
    """Step time; with rank_by expected it is divided by the probability of fitting.

    A run that fails has to be tried again: 1/p attempts on average.
    """
    seconds = scores.seconds
    if search.rank_by != "prediction":
        seconds = seconds / np.maximum(scores.fits_probability, 1e-9)
    return np.round(seconds, NOISE)


def _throughput(search: SearchOptions, table: PlanTable, scores: Scores) -> Keys:
    """At a fixed global batch the highest throughput is the shortest step."""
    return (expected_seconds(search, scores), table.world_size)


def _cost(search: SearchOptions, table: PlanTable, scores: Scores) -> Keys:
    """GPU-seconds a step: cost is proportional to them."""
    seconds = expected_seconds(search, scores)
    return (seconds * table.world_size, seconds)


def _fewest_gpus(search: SearchOptions, table: PlanTable, scores: Scores) -> Keys:
    return (table.world_size, expected_seconds(search, scores))


def _largest_micro_batch(search: SearchOptions, table: PlanTable, scores: Scores) -> Keys:
    return (-table.micro_batch, expected_seconds(search, scores))


_KEYS: dict[str, Callable[[SearchOptions, PlanTable, Scores], Keys]] = {
    "throughput": _throughput,
    "latency": _throughput,
    "cost": _cost,
    "fewest_gpus": _fewest_gpus,
    "largest_micro_batch": _largest_micro_batch,
    "largest_sequence": _throughput,
    "pareto": _throughput,
}

TIE_BREAKERS = (
    "software",
    "tp",
    "pp",
    "sp",
    "cp",
    "ep",
    "zero_stage",
    "offload_optimizer",
    "offload_param",
    "micro_batch",
    "recompute",
    "recompute_layers",
    "hpz",
    "vpp",
    "sequence_parallel",
    "partition_activations",
    "cpu_checkpointing",
    "chunked_loss",
    "compile",
    "quantized_weights",
    "quantized_gradients",
    "comm_16bit",
    "cp_all_gather",
    "capacity_factor",
    "first_stage_layers",
    "last_stage_layers",
    "placement",
    "offload_ratio",
    "reduce_bucket",
    "overlap_comm",
    "prefetch_bucket",
    "max_live_params",
)
"""Of two plans equal in the objective, the one without offload, recompute or a ZeRO that has nobody
to share with ranks first, then the one that holds less memory, then the one with the simpler
knobs."""


def keys(search: SearchOptions, table: PlanTable, scores: Scores) -> Keys:
    """All sort keys of a table; together they order any two different plans."""
    own = _KEYS[search.objective](search, table, scores)
    knobs = tuple(getattr(table, name) for name in TIE_BREAKERS)
    idle_zero = (table.zero_stage > 0) & (table.zero_group == 1) & (table.offload_optimizer == 0)
    effort = (table.offload_param, table.offload_optimizer, table.recompute, idle_zero)
    return (*own, *effort, scores.total_bytes, *knobs)


def candidate_key(search: SearchOptions, candidate: Candidate) -> tuple[float, ...]:
    """The same order for candidates of different clusters, where there are no columns."""
    chance = candidate.fits_probability if search.rank_by == "expected" else 1.0
    seconds = candidate.step.seconds / max(chance, 1e-9)
    first = {
        "cost": seconds * candidate.gpus,
        "fewest_gpus": float(candidate.gpus),
        "largest_micro_batch": -float(candidate.plan.micro_batch),
    }.get(search.objective, seconds)
    if search.objective == "cost" and candidate.usd_per_step is not None:
        first = candidate.usd_per_step / max(chance, 1e-9)
    return (first, seconds, float(candidate.gpus), candidate.memory.total_bytes)


def best_first(all_keys: Keys) -> Ints:
    """Row numbers in rank order."""
    return np.lexsort(tuple(reversed(all_keys))).astype(np.int64)


def meets_deadline(world: World, search: SearchOptions, scores: Scores) -> Bools:
    """Whether the token budget is done within the deadline; always true without one."""
    seconds = scores.seconds
    if search.deadline_days is None or world.training.tokens is None:
        return np.ones(seconds.shape, np.bool_)
    steps = -(-world.training.tokens // world.training.tokens_per_step)
    return steps * seconds <= search.deadline_days * SECONDS_PER_DAY


def acceptable(world: World, search: SearchOptions, scores: Scores) -> Bools:
    """Whether a plan fits as surely and with as much headroom as the request demands."""
    free = world.cluster.node.gpu.memory_gib * GIB - scores.total_bytes
    likely = scores.fits_probability >= search.min_fits_probability
    kept: Bools = likely & (free >= search.headroom_gib * GIB)
    return kept


def pareto_front(points: Floats) -> Bools:
    """Rows that no other row beats in every column; lower is better.

    points: [plans, objectives]. Of equal rows the first is kept.
    """
    order = np.lexsort(tuple(points.T[::-1]))
    front: list[int] = []
    for row in order:
        kept = points[front]
        if not len(kept) or not np.any(np.all(kept <= points[row], axis=1)):
            front.append(int(row))
    mask = np.zeros(len(points), np.bool_)
    mask[front] = True
    return mask


def pareto_points(table: PlanTable, scores: Scores) -> Floats:
    """Step time, memory in use and GPU-seconds, all to be low [plans, 3]."""
    seconds = scores.seconds
    return np.stack([seconds, scores.total_bytes, seconds * table.world_size], axis=1)
