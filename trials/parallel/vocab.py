"""The token table and the loss with the vocabulary cut over tensor-parallel ranks."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from trials.parallel.mesh import Axis
from trials.parallel.tensor import all_reduce, mark_sharded, reduce_from


def padded_vocab(vocab: int, axis: Axis) -> int:
    """The vocabulary rounded up to a multiple of the axis."""
    return -(-vocab // axis.size) * axis.size


class VocabParallelEmbedding(nn.Module):
    """Rows of the token table [vocab, hidden] cut over the axis."""

    def __init__(self, vocab: int, hidden: int, axis: Axis):
        super().__init__()
        self.axis = axis
        own = padded_vocab(vocab, axis) // axis.size
        self.first = own * axis.rank
        self.weight = nn.Parameter(torch.empty(own, hidden))
        mark_sharded(self.weight, axis, 0)

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [b, s]; returns [b, s, hidden], whole on every rank."""
        if self.axis.size == 1:
            return functional.embedding(ids, self.weight)
        local = ids - self.first
        outside = (local < 0) | (local >= self.weight.shape[0])
        rows = functional.embedding(local.masked_fill(outside, 0), self.weight)
        return reduce_from(rows.masked_fill(outside.unsqueeze(-1), 0.0), self.axis)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    """Cross-entropy of sharded logits (arXiv 1909.08053, section 3): three small all-reduces."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, axis: Axis, first: int) -> Tensor:
        wide = logits.float()
        top = wide.max(dim=-1).values
        if axis.size > 1:
            dist.all_reduce(top, op=dist.ReduceOp.MAX, group=axis.group)
        # The fp32 copy is ours to change; logits that were fp32 already are not.
        highest = top.unsqueeze(-1)
        logits = wide - highest if wide is logits else wide.sub_(highest)
        local = labels - first
        outside = (local < 0) | (local >= logits.shape[-1])
        local = local.masked_fill(outside, 0)
        target = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        all_reduce(target, axis)
        shares = logits.exp_()
        total = shares.sum(dim=-1)
        all_reduce(total, axis)
        shares.div_(total.unsqueeze(-1))
        ctx.save_for_backward(shares, local, outside)
        return total.log() - target

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        shares, local, outside = ctx.saved_tensors
        one = (~outside).to(shares.dtype).unsqueeze(-1)
        shares.scatter_add_(-1, local.unsqueeze(-1), -one)
        return shares.mul_(grad.unsqueeze(-1)), None, None, None


def vocab_parallel_cross_entropy(logits: Tensor, labels: Tensor, axis: Axis) -> Tensor:
    """Loss per token [tokens] of logits [tokens, vocab / tp] against labels [tokens]."""
    first = logits.shape[-1] * axis.rank
    loss: Tensor = _VocabParallelCrossEntropy.apply(logits, labels, axis, first)
    return loss
