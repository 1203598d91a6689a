"""The size of an expert's buffer, which DeepSpeed's gate reads out of a tensor."""

import importlib
import math
from collections.abc import Callable
from typing import Any

from cost_model.plans import Plan
from cost_model.specs import ModelSpec, TrainingSpec
from trials.dryrun.tracker import LiveBytes


def expert_capacity(model: ModelSpec, training: TrainingSpec, plan: Plan) -> int:
    """Tokens that one expert takes of this rank's micro-batch.

    With a capacity factor f that is f x k x tokens / experts (arXiv 2101.03961, equation 3);
    dropless experts take what they are sent, here an even share.
    """
    moe = next(kind.moe for kind in model.kinds if kind.moe is not None)
    tokens = plan.micro_batch * training.seq_len // (plan.sp * plan.cp)
    factor = plan.capacity_factor or 1.0
    return math.ceil(factor * moe.top_k * tokens / moe.experts)


def tell_capacity(live: LiveBytes, capacity: int) -> None:
    """Inside the layer every integer that is read off a tensor is the capacity."""
    layer = importlib.import_module("deepspeed.moe.sharded_moe").MOELayer
    layer.forward = _told(layer.forward, live, capacity)


def _told(forward: Callable[..., Any], live: LiveBytes, capacity: int) -> Callable[..., Any]:
    def told(*args: Any, **kwargs: Any) -> Any:
        live.integer = capacity
        try:
            return forward(*args, **kwargs)
        finally:
            live.integer = 0

    return told
