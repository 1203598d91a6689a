"""Norms over the last dimension."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.model.build import Build
from trials.parallel.mesh import Axis
from trials.parallel.tensor import copy_to, mark_sequence_parallel, mark_sharded, reduce_from

EPSILON = 1e-6


class RmsNorm(nn.Module):
    """x / rms(x) * w in fp32 (arXiv 1910.07467), operation by operation as transformers has it."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width]."""
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return self.weight * (wide * scale).to(x.dtype)


class ShardedRmsNorm(RmsNorm):
    """RMS norm over a width cut over the tensor-parallel ranks: the mean square is that of all.

    A mean over this rank's part alone would be another model.
    """

    def __init__(self, width: int, axis: Axis):
        super().__init__(width // axis.size)
        self.axis, self.whole = axis, width
        if axis.size > 1:
            mark_sharded(self.weight, axis, 0)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width / tp]."""
        if self.axis.size == 1:
            return super().forward(x)
        wide = x.float()
        square = copy_to(reduce_from(wide.pow(2).sum(-1, keepdim=True), self.axis), self.axis)
        return self.weight * (wide * torch.rsqrt(square / self.whole + EPSILON)).to(x.dtype)


class _FusedRms(torch.autograd.Function):
    """One kernel's worth of memory: the input and one scale a token are kept, nothing else."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).to(x.dtype) * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, scale = ctx.saved_tensors
        normal = x.float() * scale
        wide = grad.float()
        grad_weight = (wide * normal).flatten(0, -2).sum(0).to(weight.dtype)
        inner = wide * weight.float()
        mean = (inner * normal).mean(-1, keepdim=True)
        return (scale * (inner - normal * mean)).to(x.dtype), grad_weight


class _FusedRmsOfShape(torch.autograd.Function):
    """The allocations of a fused kernel: its outputs, without temporaries."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        scale = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
        ctx.save_for_backward(x, weight, scale)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


class FusedRmsNorm(RmsNorm):
    """The same norm with the memory of a fused kernel (Apex, flash-attn, Liger)."""

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width]."""
        function = _FusedRmsOfShape if x.device.type == "gpu" else _FusedRms
        y: Tensor = function.apply(x, self.weight)
        return y


class LayerNorm(nn.Module):
    """Layer norm (arXiv 1607.06450); PyTorch's kernel keeps the input and two scalars a token."""

    def __init__(self, width: int, *, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width]."""
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class BareNorm(nn.Module):
    """A norm without parameters: layer norm (OLMo), or RMS norm (nanochat)."""

    def __init__(self, width: int, *, rms: bool):
        super().__init__()
        self.width, self.rms = width, rms

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width]."""
        if self.rms:
            return functional.rms_norm(x, (self.width,), None, EPSILON)
        return functional.layer_norm(x, (self.width,), None, None, 1e-5)


def norm(build: Build, width: int, vectors: int | None = None) -> nn.Module:
    """The model's norm; `vectors` is how many vectors of `width` it has (0, 1 or 2)."""
    made: nn.Module
    rms = build.model.norm == "rmsnorm"
    if vectors == 0:
        made = BareNorm(width, rms=rms)
    elif rms:
        made = FusedRmsNorm(width) if build.fused_norm else RmsNorm(width)
    else:
        made = LayerNorm(width, bias=vectors != 1)
    if build.shards_sequence:
        for parameter in made.parameters():
            mark_sequence_parallel(parameter)
    return made
