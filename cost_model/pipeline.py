"""The pipeline: which layers each stage holds, and how long its schedule takes."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cost_model.memory.layout import stage_sizes, stages_on
from cost_model.plans import Bools, Floats, Ints
from cost_model.specs.model import ModelSpec

_LEFT = 0.2
"""Share of a hand-over that stays visible beside the next chunk's compute."""


@dataclass(frozen=True)
class Stages:
    """Distinct stage contents of each pipeline division. Arrays are [divisions, profiles].

    Stages with the same layers are one profile, counted in `stages`; divisions with fewer
    profiles are padded with profiles that no stage has.
    """

    layers: Ints
    """[divisions, profiles, kinds]"""
    first: Floats
    """1 where the profile is the stage with the embedding."""
    last: Floats
    """1 where the profile is the stage with the head."""
    stages: Ints
    """How many stages have this profile."""


def divide(
    model: ModelSpec,
    divisions: Iterable[tuple[int, int, int, int]],
    node_group: int | None = None,
) -> Stages:
    """Stage profiles of each (pp, first_stage_layers, last_stage_layers, placement).

    node_group: number of the group of nodes whose stages are counted; None counts all.
    """
    return _divide(model.layer_pattern, len(model.kinds), tuple(divisions), node_group)


@lru_cache(maxsize=64)
def _divide(
    pattern: tuple[int, ...],
    kinds: int,
    divisions: tuple[tuple[int, int, int, int], ...],
    node_group: int | None,
) -> Stages:
    rows: list[dict[tuple[tuple[int, ...], bool, bool], int]] = []
    for pp, first, last, placement in divisions:
        profiles: dict[tuple[tuple[int, ...], bool, bool], int] = {}
        start = 0
        here = range(pp) if node_group is None else stages_on(placement, pp, node_group)
        for stage, count in enumerate(stage_sizes(len(pattern), pp, first, last, placement)):
            held = pattern[start : start + count]
            start += count
            if stage not in here:
                continue
            key = (tuple(held.count(k) for k in range(kinds)), stage == 0, stage == pp - 1)
            profiles[key] = profiles.get(key, 0) + 1
        rows.append(profiles)
    width = max(len(row) for row in rows)
    layers = np.zeros((len(rows), width, kinds), np.int64)
    flags = np.zeros((3, len(rows), width), np.int64)
    for i, row in enumerate(rows):
        for j, ((counts, is_first, is_last), stages) in enumerate(row.items()):
            layers[i, j] = counts
            flags[:, i, j] = is_first, is_last, stages
    return Stages(layers, flags[0].astype(float), flags[1].astype(float), flags[2])


def bubble_seconds(total: Floats, slowest: Floats, vpp: Ints) -> Floats:
    """Idle time of the slowest stage in one step of the 1F1B schedule [plans].

    total: one micro-batch through every stage; slowest: through the slowest one. The first
    micro-batch fills and the last drains the pipeline, during which the slowest stage waits for
    the other stages once; interleaving v chunks divides the wait by v. With p even stages this is
    (p - 1) t / v: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2. Hand-overs of that way
    are not divided: they come on top.
    """
    return (total - slowest) / vpp


def hand_over_seconds(hop: Floats, vpp: Ints, beside: Bools) -> Floats:
    """Time that one micro-batch's hand-overs add to a stage [plans].

    hop: one there and one back. Plain 1F1B waits for each. The interleaved schedule hands over
    after every chunk; Megatron's sends while the next chunk computes (beside), which leaves the
    start of each and the share by which both slow each other.
    """
    seconds: Floats = hop * vpp * np.where(beside & (vpp > 1), _LEFT, 1.0)
    return seconds


def uncovered_hand_over(hop: Floats, forward: Floats, backward: Floats) -> Floats:
    """Time of a micro-batch's hand-overs that a stage with streams of their own waits for [plans].

    hop: one there and one back. forward, backward: seconds of compute of one micro-batch beside
    which others are handed over. A stage is as slow as the longer of the two: GPipe over slow links
    with streams for sending and receiving (arXiv 2206.01288, section 4).
    """
    half = hop / 2.0
    left: Floats = np.maximum(half - forward, 0.0) + np.maximum(half - backward, 0.0)
    return left
