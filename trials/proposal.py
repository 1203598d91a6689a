"""Why a campaign wants a trial, carried by the trial file so that nothing has to be guessed back.

No torch here.
"""

from typing import Literal

from pydantic import Field

from cost_model.plans import Plan
from cost_model.specs.frozen import Frozen


class Proxy(Frozen):
    """A smaller run that stands for a plan which needs more ranks than there are."""

    plan: Plan
    """What runs."""
    layers: int = Field(ge=1)
    """Layers of the model that runs."""
    tensor_slices: int = Field(default=1, ge=1)
    """Heads and widths are divided by this: a rank's share of them stays the same."""
    expert_slices: int = Field(default=1, ge=1)
    """Experts are divided by this."""
    sequence_slices: int = Field(default=1, ge=1)
    """The sequence is divided by this."""


class Proposal(Frozen):
    """One proposed trial of a campaign."""

    candidate: Plan
    """The plan that the trial verifies."""
    proxy: Proxy | None = None
    """None where the plan itself runs."""
    predicted_seconds: float
    """Step time of what runs."""
    predicted_bytes: float
    """Allocated peak of its worst rank."""
    origin: Literal["ranking", "sampler"] = "ranking"
    """From the calibrated ranking, or drawn by the sampler."""
    note: str = ""
