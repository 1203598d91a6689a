"""Ring attention: keys and values travel around the ranks of the context axis.

Each rank holds a shard of the sequence; partial results are merged by their log-sums
(arXiv 2310.01889, section 3; the merge is that of arXiv 2205.14135, section 3.1).
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trials.parallel.mesh import Axis


def _pass_on(tensors: tuple[Tensor, ...], axis: Axis) -> tuple[Tensor, ...]:
    """Sends to the next rank of the ring what the previous one sends here."""
    after = axis.ranks[(axis.rank + 1) % axis.size]
    before = axis.ranks[(axis.rank - 1) % axis.size]
    tensors = tuple(t.contiguous() for t in tensors)
    arrived = tuple(torch.empty_like(t) for t in tensors)
    ops = [dist.P2POp(dist.isend, t, after, axis.group) for t in tensors]
    ops += [dist.P2POp(dist.irecv, t, before, axis.group) for t in arrived]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return arrived


def _sees(rank: int, source: int, causal: bool) -> str:
    """How queries of shard `rank` see the keys of shard `source`."""
    if not causal or source < rank:
        return "all"
    return "diagonal" if source == rank else "none"


@dataclass(frozen=True)
class Mask:
    """What a query sees of the whole sequence."""

    causal: bool = True
    window: int | None = None
    """Tokens back, itself included; None sees all."""
    slopes: tuple[float, ...] = ()
    """Of ALiBi, by head of this rank; empty has none."""


def _scores(q: Tensor, k: Tensor, seen: str, mask: Mask, ahead: int) -> Tensor:
    """Scores of a block; ahead: tokens from the first key to the first query."""
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    if seen == "diagonal":
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    if mask.window is None and not mask.slopes:
        return scores
    place = torch.arange(q.shape[2], device=q.device)[:, None] + ahead
    back = place - torch.arange(k.shape[2], device=q.device)[None, :]
    if mask.window is not None:
        scores = scores.masked_fill(back >= mask.window, float("-inf"))
    if mask.slopes:
        slopes = torch.tensor(mask.slopes, device=q.device)
        scores = scores - slopes[:, None, None] * back
    return scores


def _grouped(k: Tensor, heads: int) -> Tensor:
    return k.repeat_interleave(heads // k.shape[1], dim=1) if k.shape[1] != heads else k


def _ungrouped(grad: Tensor, kv_heads: int) -> Tensor:
    return grad.unflatten(1, (kv_heads, -1)).sum(2) if grad.shape[1] != kv_heads else grad


class _Ring(torch.autograd.Function):
    """Blocks of scores exist one at a time; the backward pass goes around once more."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, axis: Axis, mask: Mask) -> Tensor:
        heads = q.shape[1]
        total = q.new_zeros((*q.shape[:-1], v.shape[-1]), dtype=torch.float32)
        norm = q.new_full(q.shape[:-1], float("-inf"), dtype=torch.float32)
        key, value = k.contiguous(), v.contiguous()
        for step in range(axis.size):
            source = (axis.rank - step) % axis.size
            seen = _sees(axis.rank, source, mask.causal)
            if seen != "none":
                ahead = (axis.rank - source) * q.shape[2]
                scores = _scores(q, _grouped(key, heads), seen, mask, ahead)
                here = scores.logsumexp(-1)
                # A row of which the window hides the whole block has no sum; its shares are 0.
                level = here.masked_fill(here.isneginf(), 0.0)
                out = (scores - level.unsqueeze(-1)).exp().to(q.dtype) @ _grouped(value, heads)
                both = torch.logaddexp(norm, here)
                old, new = (norm - both).exp(), (here - both).exp()
                total = total * old.unsqueeze(-1) + out.float() * new.unsqueeze(-1)
                norm = both
            if step + 1 < axis.size:
                key, value = _pass_on((key, value), axis)
        result = total.to(q.dtype)
        ctx.save_for_backward(q, k, v, result, norm)
        ctx.axis, ctx.mask = axis, mask
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, result, norm = ctx.saved_tensors
        axis: Axis = ctx.axis
        heads, kv_heads = q.shape[1], k.shape[1]
        scale = q.shape[-1] ** -0.5
        delta = (grad.float() * result.float()).sum(-1, keepdim=True)
        grad_q = torch.zeros_like(q, dtype=torch.float32)
        key, value = k.contiguous(), v.contiguous()
        # The gradients of a shard travel with it and are home after a full turn.
        grad_k = torch.zeros_like(key, dtype=torch.float32)
        grad_v = torch.zeros_like(value, dtype=torch.float32)
        for step in range(axis.size):
            source = (axis.rank - step) % axis.size
            seen = _sees(axis.rank, source, ctx.mask.causal)
            if seen != "none":
                wide_k, wide_v = _grouped(key, heads), _grouped(value, heads)
                ahead = (axis.rank - source) * q.shape[2]
                scores = _scores(q, wide_k, seen, ctx.mask, ahead)
                shares = (scores - norm.unsqueeze(-1)).exp()
                grad_v += _ungrouped(shares.transpose(-1, -2) @ grad.float(), kv_heads)
                inner = grad.float() @ wide_v.float().transpose(-1, -2)
                grad_scores = shares * (inner - delta) * scale
                grad_q += grad_scores @ wide_k.float()
                grad_k += _ungrouped(grad_scores.transpose(-1, -2) @ q.float(), kv_heads)
            key, value, grad_k, grad_v = _pass_on((key, value, grad_k, grad_v), axis)
        return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype), None, None


class _RingOfShape(torch.autograd.Function):
    """The allocations of ring attention whose blocks are flash kernels.

    Kept: this rank's q, k, v, the output and a log-sum a row. Alive meanwhile: the block's output
    in fp32, and two pairs of keys and values, of which one is under way.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        total = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=torch.float32, device=q.device)
        arriving = torch.empty_like(k), torch.empty_like(v)
        block = torch.empty_like(total, dtype=q.dtype)
        out = torch.empty_like(block)
        rows = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, out, rows)
        del total, arriving, block
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, _, _ = ctx.saved_tensors
        wide = [torch.empty_like(t, dtype=torch.float32) for t in (q, k, v, k, v)]
        arriving = torch.empty_like(k), torch.empty_like(v)
        block = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        del arriving, block
        grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        del wide
        return grads


def ring_attention(q: Tensor, k: Tensor, v: Tensor, axis: Axis, mask: Mask) -> Tensor:
    """Attention over the whole sequence of which each rank holds a shard [b, heads, s / cp, d]."""
    if q.device.type == "gpu":  # the fake device of dry runs
        shaped: Tensor = _RingOfShape.apply(q, k, v)
        return shaped
    out: Tensor = _Ring.apply(q, k, v, axis, mask)
    return out
