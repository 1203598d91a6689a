"""Activation checkpointing: layers whose activations are computed again in the backward pass."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cost_model.plans import Recompute
from trials.model.build import Build


def recomputed(build: Build, layers: int) -> int:
    """How many of this stage's layers are recomputed, the first ones."""
    if build.recompute not in {Recompute.FULL, Recompute.MLP}:
        return 0
    return layers if build.recompute_layers < 0 else min(build.recompute_layers, layers)


def run_recomputed(build: Build, layer: nn.Module, x: Tensor) -> Tensor:
    """One layer of which only the input is kept.

    Non-reentrant, and with the random state kept, so that dropout draws the same mask again:
    without it the gradients are of another function than the loss.
    """
    if build.deepspeed_checkpointing:
        import deepspeed

        out: Tensor = deepspeed.checkpointing.checkpoint(layer, x)
        return out
    return checkpoint(layer, x, use_reentrant=False, preserve_rng_state=build.dropout > 0)


def run_layers(build: Build, layers: Sequence[nn.Module] | nn.ModuleList, x: Tensor) -> Tensor:
    """All layers of a stage, recomputed as the plan says."""
    first = recomputed(build, len(layers))
    whole = build.recompute is Recompute.FULL
    for i, layer in enumerate(layers):
        if whole:
            x = run_recomputed(build, layer, x) if i < first else layer(x)
        else:
            x = layer(x, i < first) if first else layer(x)
    return x


def run_feed_forward(build: Build, mlp: nn.Module, x: Tensor, again: bool) -> Tensor:
    """The feed-forward of a layer; with `again` only its input is kept."""
    return run_recomputed(build, mlp, x) if again else mlp(x)
