"""What a trial may do beside training: adapt its micro-batch, push its routers. No torch here."""

from typing import Literal

from pydantic import Field

from cost_model.specs.frozen import Frozen
from trials.microbatch.law import Limits


class AdaptMicroBatch(Limits):
    """The micro-batch of the plan is where it starts; warm-up steps are not looked at."""

    keep: Literal["global_batch", "grad_accum"] = "global_batch"
    """What stays as the plan says while the micro-batch changes."""


class RouterBonus(Frozen):
    """An entropy bonus on the routers of a mixture, and their load in every step's measurement."""

    weight: float = Field(ge=0)
    """0 measures only."""
    over: Literal["mean", "token"] = "mean"
    all_ranks: bool = False
    """The mean is over the tokens of all data-parallel ranks, not of each alone."""
