"""What a new storage is for."""

import sys

import torch
from torch import Tensor

from cost_model.plans import Plan, Software
from cost_model.specs import ModelSpec

LARGE = 1 << 18
"""Elements from which on it is worth looking up who allocated."""

GATHERING = ("partition_parameters.py", "partitioned_param_coordinator.py", "parameter_offload.py")
REDUCING = ("stage_1_and_2.py", "stage3.py", "bf16_optimizer.py")


def allocated_by(names: tuple[str, ...], depth: int = 24) -> str | None:
    """The innermost file among `names` on the stack, None where there is none."""
    frame = sys._getframe(2)
    for _ in range(depth):
        if frame is None:
            return None
        name = frame.f_code.co_filename.rsplit("/", 1)[-1]
        if name in names:
            return name
        frame = frame.f_back  # type: ignore[assignment]
    return None


class Classifier:
    """Says what a new storage is for, from the phase, its shape, and the code that made it."""

    def __init__(self, model: ModelSpec, plan: Plan, dtype: torch.dtype):
        # AutoTP leaves the token table and the head whole.
        cut = 1 if plan.software is Software.DEEPSPEED else plan.tp
        self.vocab = -(-model.vocab // cut)
        self.bucket = plan.reduce_bucket
        self.shapes: set[torch.Size] = set()
        self.dtype = dtype
        self.phase = "init"

    def __call__(self, tensor: Tensor, category: str) -> str:
        """The category of a new storage; `category` is the one that the caller has set."""
        if self.phase == "init":
            return self._made_at_init(tensor) if category == "working" else category
        if self.phase == "step":
            return "step_transients"
        if self.phase not in ("forward", "backward") or category != "working":
            return category
        known = self._large(tensor) if tensor.numel() >= LARGE else None
        return known or ("activations" if self.phase == "forward" else "working")

    def _made_at_init(self, tensor: Tensor) -> str:
        """Weights as the model and the engine make them; what is wider is the engine's copy."""
        if tensor.numel() < LARGE or not tensor.dtype.is_floating_point:
            return "working"
        return "parameters" if tensor.dtype is self.dtype else "master"

    def _large(self, tensor: Tensor) -> str | None:
        if tensor.dim() == 1 and tensor.numel() == self.bucket:
            return "buckets"
        maker = allocated_by(GATHERING + REDUCING)
        if maker is not None:
            return "gathered" if maker in GATHERING else "gradients"
        if tensor.shape[-1] == self.vocab:
            return "logits"
        if self.phase == "backward" and tensor.shape in self.shapes:
            return "gradients"
        return None
