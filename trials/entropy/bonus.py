"""An entropy bonus on a mixture's routers, for any training loop.

On the batch's mean distribution the bonus spreads the load and lets each token decide; on each
token's own it makes every token undecided. Both are offered; the mean is the default.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trials.entropy.load import ExpertLoad, LoadTally
from trials.entropy.routers import Reader, find_routers

Over = Literal["mean", "token"]


def router_entropy(logits: Tensor, over: Over = "mean") -> Tensor:
    """Entropy in nats of router logits [tokens, experts]; log(experts) is its maximum."""
    return shares_entropy(logits.float().softmax(-1), over)


def shares_entropy(
    shares: Tensor, over: Over = "mean", group: dist.ProcessGroup | None = None
) -> Tensor:
    """Entropy in nats of shares of experts [tokens, experts].

    "mean" is the entropy of the mean distribution, "token" the mean of the tokens' entropies.
    group: ranks over whose tokens the mean is taken, not those of this rank alone; balancing over
    few tokens keeps experts from specialising (arXiv 2501.11873, section 3). Gradients must then
    be averaged over these ranks, as data parallelism does.
    """
    if over == "token":
        return -(shares * shares.clamp_min(1e-20).log()).sum(-1).mean()
    mean = shares.mean(0)
    if group is not None:
        whole = mean.detach().clone()
        dist.all_reduce(whole, group=group)
        # Its value is all ranks', its gradient this rank's share times their number, which the
        # averaging of gradients divides by.
        mean = mean + (whole / dist.get_world_size(group) - mean.detach())
    return -(mean * mean.clamp_min(1e-20).log()).sum()


class RouterEntropy:
    """Hooks all routers of a model; gives the term to add to the loss, and the experts' load.

    weight: nats of loss for a nat of entropy, 0 measures only. group: see `shares_entropy`.
    readers: how to read routers of classes that `find_routers` does not know.
    """

    def __init__(
        self,
        weight: float,
        over: Over = "mean",
        *,
        group: dist.ProcessGroup | None = None,
        readers: Mapping[type[nn.Module], Reader] | None = None,
    ):
        if weight < 0:
            raise ValueError(f"a weight below 0 would concentrate the load; got {weight}")
        self.weight, self.over, self.group, self.readers = weight, over, group, readers
        self._handles: list[Any] = []
        self._entropies: list[Tensor] = []
        self._tallies: dict[str, LoadTally] = {}
        self._without_gradient = False
        self._classes: tuple[Tensor, int] | None = None

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator["RouterEntropy"]:
        """Attaches for the length of a block."""
        self.attach(model)
        try:
            yield self
        finally:
            self.detach()

    def attach(self, model: nn.Module) -> "RouterEntropy":
        """Hooks every router; ValueError where the model has none."""
        for name, (module, reader) in find_routers(model, self.readers).items():
            self._handles.append(module.register_forward_hook(self._hook(name, reader)))
        return self

    def detach(self) -> None:
        """Removes the hooks and forgets what they saw."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.forget()

    def forget(self) -> None:
        """Drops what was seen since the last calls, such as of a step that is repeated."""
        self._entropies.clear()
        self._tallies.clear()

    def label(self, classes: Tensor, count: int) -> None:
        """Classes of the coming forward pass's tokens, 0 to count: what experts may know."""
        self._classes = (classes.flatten(), count)

    def _hook(self, name: str, reader: Reader) -> Any:
        def seen(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            routing = reader(module, args, output)
            if torch._C._current_graph_task_id() != -1:
                # Activation checkpointing runs the layer again in the backward pass. What the
                # reader keeps is part of the layer, so it runs both times, the rest once.
                return
            classes, count = self._classes or (None, 0)
            tally = self._tallies.setdefault(name, LoadTally(routing.shares.shape[-1], count))
            tally.add(routing, classes)
            if not module.training:
                return
            if routing.shares.requires_grad:
                if self.weight:
                    with torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is):
                        term = shares_entropy(routing.shares, self.over, self.group)
                    self._entropies.append(term)
            elif self.weight:
                self._without_gradient = True

        return seen

    def take_loss(self) -> Tensor:
        """-weight x mean entropy over the routers that ran since the last call; clears them.

        Zero for a weight of 0. ValueError where no router has run, or only without gradient.
        """
        blind, self._without_gradient = self._without_gradient, False
        if not self._entropies and self.weight == 0:
            return torch.zeros(())
        if not self._entropies:
            raise ValueError(
                "the routers ran without gradient: checkpoint layers with use_reentrant=False"
                if blind
                else "no router has run since the last call"
            )
        mean = torch.stack(self._entropies).mean()
        self._entropies.clear()
        return -self.weight * mean

    def take_load(self) -> dict[str, ExpertLoad]:
        """Load of each router's experts since the last call, by the router's name."""
        return {name: tally.take(self.group) for name, tally in self._tallies.items()}


def _as_it_is(x: Tensor) -> Tensor:
    return x
