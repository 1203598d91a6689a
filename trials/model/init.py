"""Starting values that do not depend on how the model is cut."""

import zlib

import torch
from torch import Tensor, nn

from trials.parallel.mesh import Axis

STD = 0.02
"""GPT-2's standard deviation of weights."""


def initialise(model: nn.Module, seed: int, axis: Axis | None = None, *, prefix: str = "") -> None:
    """Fills every parameter from a generator seeded by its own name.

    A parameter cut over the tensor-parallel axis is drawn whole, then cut, so all layouts of one
    model start from the same values. `axis` is taken from the model's build where not given.
    prefix: what stands before the parameters' names in the whole model.
    """
    tp = axis or model.build.mesh.tp  # type: ignore[union-attr]
    for name, parameter in model.named_parameters():
        if isinstance(tp, Axis):
            with torch.no_grad():
                fill(parameter, prefix + name, seed, tp)


def fill(parameter: nn.Parameter, name: str, seed: int, tp: Axis) -> None:
    """Fills one parameter, or this rank's part of it."""
    if hasattr(parameter, "expert"):
        # An expert's values follow its number in the layer, not on the rank.
        own = f".{getattr(parameter, 'local_expert', 0)}."
        whole_layer = f".{parameter.expert}."
        head, _, tail = name.rpartition(f"deepspeed_experts{own}")
        name = f"{head}deepspeed_experts{whole_layer}{tail}"
    leaf = name.rsplit(".", 1)[-1]
    if leaf == "bias" or leaf.endswith("_bias") or ".lora_b." in name:
        parameter.zero_()
        return
    if parameter.dim() == 1:
        parameter.fill_(1.0)
        return
    generator = torch.Generator().manual_seed(seed * 1_000_003 + zlib.crc32(name.encode()))
    dim = getattr(parameter, "shard_dim", None)
    if dim is None or tp.size == 1:
        whole = torch.randn(parameter.shape, generator=generator) * STD
        parameter.copy_(whole)
        return
    shape = list(parameter.shape)
    shape[dim] *= tp.size
    whole = torch.randn(shape, generator=generator) * STD
    parameter.copy_(shard(whole, dim, tp))


def shard(whole: Tensor, dim: int, tp: Axis) -> Tensor:
    """This rank's part."""
    return whole.chunk(tp.size, dim)[tp.rank]
