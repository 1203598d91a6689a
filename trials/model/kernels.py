"""The core of attention: softmax(q k^T / sqrt(d)) v, by kernel.

What a kernel keeps for the backward pass is what distinguishes them: eager keeps the scores'
softmax in fp32 and in 16 bits, a fused softmax only the latter, flash attention
(arXiv 2205.14135) one number a row.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cost_model.specs import AttentionKernel

Flash = Callable[[Tensor, Tensor, Tensor, bool, float], Tensor]
"""(q, k, v, causal, dropout) to the output; q [b, heads, s, d], k and v may have fewer heads."""


def _torch_flash(q: Tensor, k: Tensor, v: Tensor, causal: bool, dropout: float) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, dropout_p=dropout, enable_gqa=grouped
    )


class _FlashOfShape(torch.autograd.Function):
    """The allocations of flash attention, without its arithmetic.

    Kept: q, k, v, the output and the fp32 log-sum of each row. The backward kernel accumulates
    the gradient of q in fp32 (flash-attn 2, `dq_accum`), and the gradients of k and v by query
    head where several share one key head, before they are summed.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        b, heads, s, _ = q.shape
        out = q.new_empty(b, s, heads, v.shape[-1]).transpose(1, 2)
        rows = torch.empty((b, heads, s), dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, out, rows)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, _, rows = ctx.saved_tensors
        grad = grad.contiguous() if not grad.transpose(1, 2).is_contiguous() else grad
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        wide = torch.empty(q.shape, dtype=torch.float32, device=q.device)
        delta = torch.empty_like(rows)
        if k.shape[1] != q.shape[1]:
            each = (q.shape[0], q.shape[1], k.shape[2])
            expanded = k.new_empty(*each, k.shape[3]), v.new_empty(*each, v.shape[3])
            del expanded
        del wide, delta
        return dq, dk, dv


def _shape_flash(q: Tensor, k: Tensor, v: Tensor, causal: bool, dropout: float) -> Tensor:
    out: Tensor = _FlashOfShape.apply(q, k, v)
    return out


FLASH: dict[str, Flash] = {"gpu": _shape_flash}
"""By device type; "gpu" is the fake device of dry runs. PyTorch's own serves all others."""


def window_mask(length: int, keys: int, window: int | None, causal: bool, like: Tensor) -> Tensor:
    """Which keys each query may see: bool [length, keys]."""
    row = torch.arange(length, device=like.device)[:, None] + (keys - length)
    column = torch.arange(keys, device=like.device)[None, :]
    seen = torch.ones((length, keys), dtype=torch.bool, device=like.device)
    if causal:
        seen &= column <= row
    if window is not None:
        seen &= row - column < window
    return seen


class _FusedSoftmax(torch.autograd.Function):
    """Scaled, masked softmax that keeps only its output (Megatron-LM's fused kernels)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, scale: float, mask: Tensor | None) -> Tensor:
        if scores.device.type == "gpu":
            out = torch.empty_like(scores)
        else:
            wide = scores.float() * scale
            if mask is not None:
                wide = wide.masked_fill(~mask, float("-inf"))
            out = wide.softmax(-1).to(scores.dtype)
        ctx.save_for_backward(out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (out,) = ctx.saved_tensors
        if grad.device.type == "gpu":
            return torch.empty_like(grad), None, None
        wide, shares = grad.float(), out.float()
        inner = (wide * shares).sum(-1, keepdim=True)
        return (ctx.scale * shares * (wide - inner)).to(grad.dtype), None, None


def _expand(x: Tensor, heads: int) -> Tensor:
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def _with_scores(
    kernel: AttentionKernel,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
) -> Tensor:
    k, v = _expand(k, q.shape[1]), _expand(v, q.shape[1])
    scale = q.shape[-1] ** -0.5
    scores = torch.matmul(q, k.transpose(-1, -2))
    if kernel == "fused_softmax" and bias is None:
        shares: Tensor = _FusedSoftmax.apply(scores, scale, mask)
    else:
        scores = scores * scale
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            low = torch.finfo(scores.dtype).min
            scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, low)
        shares = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(drop(shares, dropout), v)


def drop(x: Tensor, p: float) -> Tensor:
    """Dropout that keeps a mask of one byte an element, as the CUDA kernel does."""
    return x if p == 0 else torch.native_dropout(x, p, train=True)[0]


def attend(
    kernel: AttentionKernel,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = True,
    window: int | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of q [b, heads, s, d] over k and v, which may have fewer heads.

    Returns [b, heads, s, value width]. Kernels of the flash family take windows and ALiBi slopes
    without a mask in memory; where PyTorch's own runs, it needs the mask.
    """
    narrow = window is not None and window < k.shape[2]
    if kernel in ("eager", "fused_softmax"):
        plain = causal or narrow
        mask = window_mask(q.shape[2], k.shape[2], window if narrow else None, causal, q)
        return _with_scores(kernel, q, k, v, mask if plain else None, bias, dropout)
    flash = FLASH.get(q.device.type, _torch_flash)
    if flash is _torch_flash and (narrow or bias is not None):
        mask = window_mask(q.shape[2], k.shape[2], window if narrow else None, causal, q)
        added = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, float("-inf"))
        if bias is not None:
            added = added + bias
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=added, dropout_p=dropout, enable_gqa=q.shape[1] != k.shape[1]
        )
    return flash(q, k, v, causal, dropout)
