"""How many nodes a request that no plan meets would take."""

from dataclasses import replace
from math import ceil

import numpy as np

from planner.ranking import rank
from planner.request.request import Resolved
from planner.space.emptiness import has_plan

MOST_NODES = 4096
FINEST = 64
"""Where plans must use all nodes, their number is found to one part in so many."""

SPARE = 1.25
"""Nodes looked at first, over those that a run would take that gains in full from each."""


def _fewest(resolved: Resolved, nodes: int) -> int | None:
    """The fewest nodes of that many with which a plan does; None where none does with all."""
    cluster = resolved.cluster.model_copy(update={"nodes": nodes})
    search = resolved.search.model_copy(update={"keep": 1, "objective": "fewest_gpus"})
    one = replace(resolved, cluster=cluster, search=search)
    if not has_plan(one.world, search):
        return None
    table = rank(one).table
    return int(np.min(table.nodes)) if len(table) else None


def enough_nodes(resolved: Resolved, late: float = 0.0) -> int | None:
    """The fewest nodes that make a plan fit, and be done in time; None where no number does.

    late: the days of the quickest plan on the nodes there are over those of the deadline. One
    search answers for all numbers of nodes up to the most that it may use, so the most is doubled
    until there is a plan.
    """
    low = resolved.cluster.nodes
    high = max(2 * low, ceil(SPARE * late * low))
    if low < MOST_NODES < high and late * low < MOST_NODES:
        high = MOST_NODES
    found = None
    while high <= MOST_NODES and (found := _fewest(resolved, high)) is None:
        low, high = high, 2 * high
    if found is None or resolved.search.allow.fewer_nodes:
        return found
    while high - low > max(1, high // FINEST):
        middle = (low + high) // 2
        if _fewest(resolved, middle) is None:
            low = middle
        else:
            high = middle
    return high
