"""The longest sequence for which any plan fits."""

from dataclasses import replace

from planner.ranking import rank
from planner.request.request import Resolved
from planner.space.emptiness import has_plan

STEP = 1024
"""Tokens: lengths are multiples of it, so that sequence-parallel degrees divide them."""

MOST = 16 * 2**20
"""Tokens: where a model has no limit of its own, the search stops here."""


def at_length(resolved: Resolved, seq_len: int) -> Resolved:
    """The same request for another sequence length, at the same sequences per step."""
    training = resolved.training.model_copy(update={"seq_len": seq_len})
    return replace(resolved, training=training)


def longest_sequence(resolved: Resolved) -> int | None:
    """Largest multiple of STEP up to the model's limit for which a plan fits; None where none does.

    Memory rises with the length, so the length is doubled until nothing fits, then the interval
    is halved.
    """
    search = resolved.search.model_copy(update={"keep": 1, "objective": "throughput"})
    asked = replace(resolved, search=search)

    def fits(steps: int) -> bool:
        one = at_length(asked, steps * STEP)
        return has_plan(one.world, search) and len(rank(one).table) > 0

    most = (resolved.model.max_seq_len or MOST) // STEP
    if most < 1 or not fits(1):
        return None
    low, high = 1, 2
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * STEP
