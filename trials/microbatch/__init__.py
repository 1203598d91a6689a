"""Adapts the micro-batch while training goes on: the same engine, no restart.

`AdaptiveMicroBatch` decides, `EngineMicroBatch` applies it to a DeepSpeed engine on all ranks.
"""

from typing import TYPE_CHECKING, Any

from trials.microbatch.law import AdaptiveMicroBatch, Limits, StepReport
from trials.microbatch.saturation import Saturation

if TYPE_CHECKING:
    from trials.microbatch.engine import EngineMicroBatch

__all__ = ["AdaptiveMicroBatch", "EngineMicroBatch", "Limits", "Saturation", "StepReport"]


def __getattr__(name: str) -> Any:
    """Torch is imported by whoever has an engine, not by whoever reads a trial file."""
    if name == "EngineMicroBatch":
        from trials.microbatch.engine import EngineMicroBatch

        return EngineMicroBatch
    raise AttributeError(name)
