"""Mixture of experts: tokens per expert, imbalance, and what the router moves."""

import numpy as np

from cost_model.plans import Floats, PlanTable
from cost_model.specs.model import Moe

_IMBALANCE = 1.1
"""Tokens of the busiest rank over the mean, for a router trained with a balancing loss."""


def busiest_share(moe: Moe, table: PlanTable) -> Floats:
    """Tokens that the busiest expert-parallel rank works on, over the mean [plans].

    With a capacity factor every expert computes exactly that many slots, filled or not (GShard,
    arXiv 2006.16668, section 2.2). Without one the busiest rank decides; a rank that holds all
    experts is balanced whatever the router does.
    """
    dropless = np.where(table.ep > 1, _IMBALANCE, 1.0)
    return np.where(table.capacity_factor > 0, table.capacity_factor, dropless)


def expert_tokens(moe: Moe, table: PlanTable, tokens: Floats) -> tuple[Floats, Floats]:
    """Tokens of each expert, and experts, on one rank [plans].

    The ep ranks of a group route ep x tokens x top_k over all experts, of which a rank holds
    experts / ep.
    """
    local = np.maximum(moe.experts / table.ep, 1.0)
    each = tokens * moe.top_k * table.ep / moe.experts * busiest_share(moe, table)
    return each, local


def router_passes(moe: Moe | None) -> float:
    """Passes over routed tokens x hidden: gather into expert order, scatter back weighted."""
    return 0.0 if moe is None else 5.0


def all_to_all_bytes(moe: Moe, table: PlanTable, tokens: Floats, hidden: int) -> Floats:
    """Bytes that one rank holds in one dispatch or combine, at 2 bytes an element [plans].

    Under tensor parallelism the tokens of a group are split before they are sent
    (DeepSpeed-TED, arXiv 2303.06318, section 5), so each rank sends its part.
    """
    sent: Floats = tokens * moe.top_k * hidden * 2.0 / table.tp * busiest_share(moe, table)
    return np.where(table.ep > 1, sent, 0.0)
