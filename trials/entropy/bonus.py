"""An entropy bonus on a mixture's router, and what it does to the load of the experts.

On the batch's mean distribution the bonus spreads the load and lets each token decide; on each
token's own it makes every token undecided. Both are offered; the mean is the default.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

Over = Literal["mean", "token"]


def router_entropy(logits: Tensor, over: Over = "mean") -> Tensor:
    """Entropy in nats of router logits [tokens, experts]; log(experts) is its maximum."""
    shares = logits.float().softmax(-1)
    if over == "mean":
        shares = shares.mean(0)
    return -(shares * shares.clamp_min(1e-20).log()).sum(-1).mean()


class RouterEntropy:
    """Collects the logits of all routers of a model and gives the term to add to the loss."""

    def __init__(self, weight: float, over: Over = "mean"):
        self.weight, self.over = weight, over
        self._logits: list[Tensor] = []

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator["RouterEntropy"]:
        """Hooks every router: modules named `gate` that return logits first, or are linear."""
        handles = []
        for name, module in model.named_modules():
            if name.rsplit(".", 1)[-1] in ("gate", "wg") and not list(module.children()):
                handles.append(module.register_forward_hook(self._seen))
        if not handles:
            raise ValueError("the model has no router (a module named 'gate' or 'wg')")
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()
            self._logits.clear()

    def _seen(self, module: nn.Module, args: Any, output: Any) -> None:
        self._logits.append(output[0] if isinstance(output, tuple) else output)

    def take_loss(self) -> Tensor:
        """-weight x mean entropy over the routers seen since the last call; clears them."""
        if not self._logits:
            raise ValueError("no router has run since the last call")
        terms = [router_entropy(logits, self.over) for logits in self._logits]
        self._logits.clear()
        return -self.weight * torch.stack(terms).mean()


def load_statistics(index: Tensor, experts: int, capacity: int | None = None) -> dict[str, float]:
    """Load of experts chosen by index [tokens, k].

    `cv` is the coefficient of variation, `max_over_mean` the imbalance that sets the step time of
    expert parallelism, `dropped` the share of routes beyond the capacity.
    """
    load = torch.bincount(index.flatten(), minlength=experts).float()
    mean = load.mean()
    dropped = 0.0 if capacity is None else float((load - capacity).clamp_min(0).sum() / load.sum())
    return {
        "cv": float(load.std(unbiased=False) / mean),
        "max_over_mean": float(load.max() / mean),
        "dropped": dropped,
    }
