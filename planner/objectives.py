"""What the best plan is: one key per objective, lower is better."""

from collections.abc import Callable

import numpy as np

from cost_model.plans import Bools, Floats, Ints, PlanTable
from cost_model.prediction import Prediction
from planner.candidate import GIB, SECONDS_PER_DAY
from planner.request.search import SearchOptions
from planner.rules import World

Keys = tuple[Floats | Ints, ...]
"""Sort keys, the most important first [plans] each."""


def expected_seconds(search: SearchOptions, prediction: Prediction) -> Floats:
    """Step time; with rank_by expected it is divided by the probability of fitting.

    A run that fails has to be tried again: 1/p attempts on average.
    """
    if search.rank_by == "prediction":
        return prediction.step.seconds
    return prediction.step.seconds / np.maximum(prediction.fits_probability, 1e-9)


def _throughput(search: SearchOptions, table: PlanTable, prediction: Prediction) -> Keys:
    """At a fixed global batch the highest throughput is the shortest step."""
    return (expected_seconds(search, prediction), table.world_size)


def _cost(search: SearchOptions, table: PlanTable, prediction: Prediction) -> Keys:
    """GPU-seconds a step: cost is proportional to them."""
    seconds = expected_seconds(search, prediction)
    return (seconds * table.world_size, seconds)


def _fewest_gpus(search: SearchOptions, table: PlanTable, prediction: Prediction) -> Keys:
    return (table.world_size, expected_seconds(search, prediction))


def _largest_micro_batch(search: SearchOptions, table: PlanTable, prediction: Prediction) -> Keys:
    return (-table.micro_batch, expected_seconds(search, prediction))


_KEYS: dict[str, Callable[[SearchOptions, PlanTable, Prediction], Keys]] = {
    "throughput": _throughput,
    "latency": _throughput,
    "cost": _cost,
    "fewest_gpus": _fewest_gpus,
    "largest_micro_batch": _largest_micro_batch,
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
)
"""Of two plans equal in the objective and in memory, the one with the simpler knobs ranks first."""


def keys(search: SearchOptions, table: PlanTable, prediction: Prediction) -> Keys:
    """All sort keys of a table; together they order any two different plans."""
    own = _KEYS[search.objective](search, table, prediction)
    knobs = tuple(getattr(table, name) for name in TIE_BREAKERS)
    return (*own, prediction.memory.total_bytes, *knobs)


def best_first(all_keys: Keys) -> Ints:
    """Row numbers in rank order."""
    return np.lexsort(tuple(reversed(all_keys))).astype(np.int64)


def meets_deadline(world: World, search: SearchOptions, prediction: Prediction) -> Bools:
    """Whether the token budget is done within the deadline; always true without one."""
    seconds = prediction.step.seconds
    if search.deadline_days is None or world.training.tokens is None:
        return np.ones(seconds.shape, np.bool_)
    steps = -(-world.training.tokens // world.training.tokens_per_step)
    return steps * seconds <= search.deadline_days * SECONDS_PER_DAY


def acceptable(world: World, search: SearchOptions, prediction: Prediction) -> Bools:
    """Whether a plan fits as surely and with as much headroom as the request demands."""
    free = world.cluster.node.gpu.memory_gib * GIB - prediction.memory.total_bytes
    likely = prediction.fits_probability >= search.min_fits_probability
    return likely & (free >= search.headroom_gib * GIB) & (prediction.fits | (free >= 0))


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


def pareto_points(world: World, table: PlanTable, prediction: Prediction) -> Floats:
    """Step time, memory in use and GPU-seconds, all to be low [plans, 3]."""
    seconds = prediction.step.seconds
    return np.stack([seconds, prediction.memory.total_bytes, seconds * table.world_size], axis=1)
