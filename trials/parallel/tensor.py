"""Tensor parallelism: matrices cut by columns and rows, with or without sequence parallelism.

Megatron-LM (arXiv 1909.08053, section 3); sequence parallelism of norms and residuals over the
same ranks (arXiv 2205.05198, section 4.2). Activations are [batch, sequence, features].
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from trials.parallel.mesh import Axis

SEQUENCE = 1
"""The dimension along which sequence parallelism shards."""


def all_gather(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """The shards of all ranks of the axis, put together along `dim`."""
    if axis.size == 1:
        return x
    out = torch.empty((axis.size, *x.shape), dtype=x.dtype, device=x.device)
    dist.all_gather_single(out.view(-1), x.contiguous().view(-1), group=axis.group)
    if dim == 0 or all(n == 1 for n in x.shape[:dim]):
        shape = list(x.shape)
        shape[dim] *= axis.size
        return out.view(shape)
    return torch.cat(out.unbind(0), dim=dim)


def reduce_scatter(x: Tensor, axis: Axis, dim: int) -> Tensor:
    """The sum over the ranks of the axis, of which this rank keeps its slice along `dim`."""
    if axis.size == 1:
        return x
    if dim == 0 or all(n == 1 for n in x.shape[:dim]):
        source = x.contiguous()
    else:
        source = torch.cat(x.chunk(axis.size, dim), dim=0).contiguous()
    shape = list(x.shape)
    shape[dim] //= axis.size
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    dist.reduce_scatter_single(out.view(-1), source.view(-1), group=axis.group)
    return out


def all_reduce(x: Tensor, axis: Axis) -> Tensor:
    """The sum over the ranks of the axis, in place."""
    if axis.size > 1:
        dist.all_reduce(x, group=axis.group)
    return x


class _Copy(torch.autograd.Function):
    """Identity forward, all-reduce backward: the f of arXiv 1909.08053."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return all_reduce(grad.contiguous(), ctx.axis), None


class _Reduce(torch.autograd.Function):
    """All-reduce forward, identity backward: the g of arXiv 1909.08053."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.mark_dirty(x)
        return all_reduce(x, axis)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _ReduceScatter(torch.autograd.Function):
    """Reduce-scatter along the sequence forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return reduce_scatter(x, axis, SEQUENCE)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return all_gather(grad, ctx.axis, SEQUENCE), None


class _Gather(torch.autograd.Function):
    """All-gather along a dimension forward; backward reduce-scatter, or this rank's slice.

    The slice is right where every rank computes the same from the gathered whole.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int, reduce: bool) -> Tensor:
        ctx.axis, ctx.dim, ctx.reduce = axis, dim, reduce
        return all_gather(x, axis, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.reduce:
            return reduce_scatter(grad, ctx.axis, ctx.dim), None, None, None
        chunk = grad.chunk(ctx.axis.size, ctx.dim)[ctx.axis.rank]
        return chunk.contiguous(), None, None, None


class _Scatter(torch.autograd.Function):
    """This rank's slice of the sequence forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return x.chunk(axis.size, SEQUENCE)[axis.rank].contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return all_gather(grad, ctx.axis, SEQUENCE), None


class _GatheredLinear(torch.autograd.Function):
    """x W^T on the whole sequence, of which only this rank's shard is kept.

    The backward pass gathers the sequence again, so the kept activations stay sharded
    (arXiv 2205.05198, section 4.2.2).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, axis: Axis) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.axis = axis
        return functional.linear(all_gather(x, axis, SEQUENCE), weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        whole = all_gather(x, ctx.axis, SEQUENCE)
        grad_x = reduce_scatter(grad @ weight, ctx.axis, SEQUENCE)
        grad_weight = grad.flatten(0, -2).t() @ whole.flatten(0, -2)
        return grad_x, grad_weight, None


def copy_to(x: Tensor, axis: Axis) -> Tensor:
    """Enters a tensor-parallel region from a replicated tensor."""
    return x if axis.size == 1 else _Copy.apply(x, axis)


def reduce_from(x: Tensor, axis: Axis) -> Tensor:
    """Leaves a tensor-parallel region: the sum of the ranks' partial results."""
    return x if axis.size == 1 else _Reduce.apply(x, axis)


def gather_sequence(x: Tensor, axis: Axis, *, reduce: bool = True) -> Tensor:
    """The whole sequence from its shards; `reduce` where the ranks' gradients are partial."""
    return x if axis.size == 1 else _Gather.apply(x, axis, SEQUENCE, reduce)


def gather_features(x: Tensor, axis: Axis) -> Tensor:
    """All features from column-parallel shards; every rank goes on with the same whole."""
    return x if axis.size == 1 else _Gather.apply(x, axis, x.dim() - 1, False)


def scatter_sequence(x: Tensor, axis: Axis) -> Tensor:
    """This rank's shard of a replicated sequence."""
    return x if axis.size == 1 else _Scatter.apply(x, axis)


def shard_of(size: int, axis: Axis, what: str) -> int:
    """The share of one rank; raises ValueError where the axis does not divide the size."""
    if size % axis.size:
        raise ValueError(
            f"{what} ({size}) must be divisible by the tensor-parallel degree {axis.size}"
        )
    return size // axis.size


class ColumnParallelLinear(nn.Module):
    """y = x W^T + b with the rows of W [out, in] cut over the axis: the output is sharded."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        bias: bool,
        axis: Axis,
        *,
        sequence_parallel: bool = False,
        unit: int = 1,
    ):
        super().__init__()
        self.axis = axis
        self.sequence_parallel = sequence_parallel and axis.size > 1
        own = unit * shard_of(n_out // unit, axis, "heads" if unit > 1 else "features")
        self.weight = nn.Parameter(torch.empty(own, n_in))
        self.bias = nn.Parameter(torch.empty(own)) if bias else None
        mark_sharded(self.weight, axis, 0)
        if self.bias is not None:
            mark_sharded(self.bias, axis, 0)

    def forward(self, x: Tensor) -> Tensor:
        """x: [b, s, in], or [b, s / tp, in] under sequence parallelism; returns [b, s, own]."""
        if self.sequence_parallel:
            y = _GatheredLinear.apply(x, self.weight, self.axis)
            return y if self.bias is None else y + self.bias
        return functional.linear(copy_to(x, self.axis), self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """y = x W^T + b with the columns of W [out, in] cut over the axis: the output is whole.

    The bias is added once, after the sum over the ranks.
    """

    def __init__(
        self, n_in: int, n_out: int, bias: bool, axis: Axis, *, sequence_parallel: bool = False
    ):
        super().__init__()
        self.axis = axis
        self.sequence_parallel = sequence_parallel and axis.size > 1
        self.weight = nn.Parameter(torch.empty(n_out, shard_of(n_in, axis, "features")))
        self.bias = nn.Parameter(torch.empty(n_out)) if bias else None
        mark_sharded(self.weight, axis, 1)
        if self.bias is not None and self.sequence_parallel:
            mark_sequence_parallel(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [b, s, in / tp]; returns [b, s, out], or [b, s / tp, out]."""
        y = functional.linear(x, self.weight)
        if self.sequence_parallel:
            y = _ReduceScatter.apply(y, self.axis)
        else:
            y = reduce_from(y, self.axis)
        return y if self.bias is None else y + self.bias


def mark_sharded(parameter: nn.Parameter, axis: Axis, dim: int) -> None:
    """Says that each tensor-parallel rank holds another part of this parameter.

    DeepSpeed counts parameters without `model_parallel` once over the group in gradient norms.
    """
    if axis.size > 1:
        parameter.model_parallel = True  # type: ignore[attr-defined]
        parameter.tensor_model_parallel = True  # type: ignore[attr-defined]
    parameter.shard_dim = dim  # type: ignore[attr-defined]


def mark_sequence_parallel(parameter: nn.Parameter) -> None:
    """Says that this replicated parameter sees only a shard of the sequence on each rank.

    Its gradient is partial and must be summed over the tensor-parallel ranks before the step.
    """
    parameter.sequence_parallel = True  # type: ignore[attr-defined]


def sum_sequence_parallel_grads(module: nn.Module, axis: Axis) -> None:
    """Registers the sum over the axis for every parameter that `mark_sequence_parallel` named."""
    if axis.size == 1:
        return
    for parameter in module.parameters():
        if getattr(parameter, "sequence_parallel", False) and parameter.requires_grad:
            parameter.register_hook(lambda grad: all_reduce(grad.contiguous().clone(), axis))
