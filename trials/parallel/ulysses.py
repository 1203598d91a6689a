"""Ulysses: sequence shards are traded for head shards around attention (arXiv 2309.14509)."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trials.parallel.mesh import Axis

HEADS, SEQUENCE = 1, 2


def _exchange(x: Tensor, axis: Axis, cut: int, join: int) -> Tensor:
    """All-to-all: cuts x [b, heads, s, d] along one dimension, joins along the other."""
    parts = torch.stack([part.contiguous() for part in x.chunk(axis.size, cut)])
    out = torch.empty_like(parts)
    dist.all_to_all_single(out.view(-1), parts.view(-1), group=axis.group)
    return torch.cat(out.unbind(0), dim=join)


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, cut: int, join: int) -> Tensor:
        ctx.axis, ctx.cut, ctx.join = axis, cut, join
        return _exchange(x, axis, cut, join)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _exchange(grad, ctx.axis, ctx.join, ctx.cut), None, None, None


def scatter_heads(x: Tensor, axis: Axis) -> Tensor:
    """[b, heads, s / sp, d] to [b, heads / sp, s, d]; fewer heads than ranks are repeated."""
    if axis.size == 1:
        return x
    if x.shape[HEADS] % axis.size:
        if axis.size % x.shape[HEADS]:
            raise ValueError(f"{x.shape[HEADS]} heads cannot be cut over {axis.size} ranks")
        x = x.repeat_interleave(axis.size // x.shape[HEADS], dim=HEADS)
    out: Tensor = _AllToAll.apply(x, axis, HEADS, SEQUENCE)
    return out


def gather_heads(x: Tensor, axis: Axis) -> Tensor:
    """[b, heads / sp, s, d] to [b, heads, s / sp, d]."""
    if axis.size == 1:
        return x
    out: Tensor = _AllToAll.apply(x, axis, SEQUENCE, HEADS)
    return out
