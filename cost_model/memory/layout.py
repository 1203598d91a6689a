"""Which layers each pipeline stage holds, and which stages can be the fullest."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cost_model.memory.groups import group
from cost_model.placement import Placement
from cost_model.plans import Bools, Floats, Ints, PlanTable
from cost_model.specs import ModelSpec


def stage_sizes(
    layers: int, pp: int, first: int = 0, last: int = 0, placement: int = 0
) -> list[int]:
    """How many layers each of `pp` stages holds; they sum to `layers`.

    `first` and `last` fix the ends where they are not 0. The rest is divided evenly, earlier
    stages taking the remainder (DeepSpeed's partition_uniform; Megatron needs no remainder). With
    a placement that holds within each group of nodes.
    """
    if pp == 1:
        return [layers]
    if placement:
        groups = Placement(placement).groups(pp, layers)
        sizes = []
        for number, (stages, held) in enumerate(groups):
            ends = first if number == 0 else 0, last if number == len(groups) - 1 else 0
            sizes += stage_sizes(held, stages, *ends)
        return sizes
    fixed_first, fixed_last = first > 0, last > 0
    middle = pp - fixed_first - fixed_last
    rest = layers - first - last
    sizes = [first] if fixed_first else []
    if middle:
        share, more = divmod(max(rest, 0), middle)
        sizes += [share + (stage < more) for stage in range(middle)]
    return sizes + ([last] if fixed_last else [])


@dataclass(frozen=True)
class Stages:
    """One stage of every plan [plans]: the layers it holds, and what else."""

    index: Ints
    """Stage number."""
    layers: tuple[Floats, ...]
    """Layers of each kind of the model."""
    has_embedding: Bools
    has_head: Bools


def _kinds_per_stage(pattern: tuple[int, ...], kinds: int, sizes: list[int]) -> Ints:
    """Layers of each kind by stage [stages, kinds]."""
    kind_of_layer = np.asarray(pattern, np.int64)
    stage_of_layer = np.repeat(np.arange(len(sizes)), sizes)[: len(pattern)]
    counts = np.zeros((len(sizes), kinds), np.int64)
    np.add.at(counts, (stage_of_layer, kind_of_layer[: len(stage_of_layer)]), 1)
    return counts


def _can_be_fullest(counts: Ints) -> list[int]:
    """Stages that no other stage surely exceeds.

    The first holds the embedding and the last the head. A stage between them is exceeded by an
    earlier one that has no fewer layers of any kind, since the earlier keeps no fewer
    micro-batches in flight.
    """
    last = len(counts) - 1
    kept = [0]
    for stage in range(1, last):
        if not any((counts[earlier] >= counts[stage]).all() for earlier in kept):
            kept.append(stage)
    return [*kept, last] if last else kept


_Division = tuple[int, int, int, int]
"""Stages, layers of the first and of the last one, placement."""

_COLUMNS = ("pp", "first_stage_layers", "last_stage_layers", "placement")


def _division(table: PlanTable, row: int) -> _Division:
    pp, first, last, placement = (int(getattr(table, name)[row]) for name in _COLUMNS)
    return pp, first, last, placement


@lru_cache(maxsize=8192)
def _contents(
    pattern: tuple[int, ...], kinds: int, division: _Division, node_group: int | None
) -> tuple[Ints, list[int]]:
    """Layers of each kind by stage [stages, kinds], and the stages that can be the fullest."""
    counts = _kinds_per_stage(pattern, kinds, stage_sizes(len(pattern), *division))
    here = range(len(counts))
    if node_group is not None:
        here = stages_on(division[-1], len(counts), node_group)
    fullest = _can_be_fullest(counts[here.start : here.stop])
    return counts, [here.start + stage for stage in fullest]


def stages_on(placement: int, pp: int, number: int) -> range:
    """The stages that lie on a group of nodes."""
    counts = [stages for stages, _ in Placement(placement).groups(pp, 0)]
    begin = sum(counts[:number])
    return range(begin, begin + counts[number])


def candidate_stages(
    model: ModelSpec, table: PlanTable, node_group: int | None = None
) -> list[Stages]:
    """The stages to evaluate, as slots: the fullest stage of each plan is in one of them.

    node_group: number of the group of nodes whose stages are looked at; None looks at all. Plans
    with fewer candidates repeat their last one in the remaining slots.
    """
    groups = group(*(getattr(table, name) for name in _COLUMNS))
    pattern, kinds = tuple(model.layer_pattern), len(model.kinds)
    found = [
        _contents(pattern, kinds, _division(table, row), node_group)
        for row in groups.first.tolist()
    ]
    counts, stages = [c for c, _ in found], [s for _, s in found]
    slots = max(len(s) for s in stages)
    out = []
    for slot in range(slots):
        index = np.array([s[min(slot, len(s) - 1)] for s in stages], np.int64)
        layers = np.array([c[stage] for c, stage in zip(counts, index, strict=True)], np.float64)
        last = np.array([len(c) - 1 for c in counts], np.int64)
        out.append(
            Stages(
                index=index.take(groups.of_row),
                layers=tuple(
                    layers[:, kind].take(groups.of_row) for kind in range(len(model.kinds))
                ),
                has_embedding=(index == 0).take(groups.of_row),
                has_head=(index == last).take(groups.of_row),
            )
        )
    return out


def given_stages(model: ModelSpec, table: PlanTable, index: Ints) -> Stages:
    """The stage `index` [plans] of each plan; for the few rows of a breakdown."""
    counts = np.zeros((len(table), len(model.kinds)))
    pattern = tuple(model.layer_pattern)
    last = table.pp - 1
    for row in range(len(table)):
        by_kind, _ = _contents(pattern, len(model.kinds), _division(table, row), None)
        counts[row] = by_kind[index[row]]
    return Stages(
        index=index,
        layers=tuple(counts[:, kind].copy() for kind in range(len(model.kinds))),
        has_embedding=index == 0,
        has_head=index == last,
    )


def layers_in_flight(table: PlanTable, stage: Ints) -> Floats:
    """Micro-batches whose activations a stage keeps, in units of its whole layer count [plans].

    1F1B keeps min(m, p - stage) micro-batches. Interleaving with v chunks keeps
    min(m v, 2 (p - stage - 1) + (v - 1) p + 1) chunks of 1 / v of the layers each; for the first
    stage that is p (1 + (p - 1) / (p v)), arXiv 2205.05198, section 4.2.3.
    """
    plain: Floats = np.minimum(table.grad_accum, table.pp - stage).astype(np.float64)
    if int(table.vpp.max()) == 1:
        return plain
    v = table.vpp
    chunks = np.minimum(table.grad_accum * v, 2 * (table.pp - stage - 1) + (v - 1) * table.pp + 1)
    held: Floats = np.where((v > 1) & (table.pp > 1), chunks / v, plain)
    return held
