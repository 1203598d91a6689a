"""Position schemes: rotary angles and ALiBi slopes, computed once a model and shape."""

import math

import torch
from torch import Tensor

ROTARY_BASE = 10_000.0
"""arXiv 2104.09864, section 3.3. Models with another base differ in values, not in cost."""

Rotary = tuple[Tensor, Tensor]
"""Cosines and sines, each [sequence, rotary width]."""


class Positions:
    """Shared by all layers of one model, so that the tables exist once."""

    def __init__(self) -> None:
        self._rotary: dict[tuple[object, ...], Rotary] = {}
        self._alibi: dict[tuple[object, ...], Tensor] = {}

    def rotary(self, like: Tensor, length: int, offset: int, width: int) -> Rotary:
        """Tables for positions offset to offset + length in the dtype and on the device of like."""
        key = (length, offset, width, like.dtype, like.device)
        if key not in self._rotary:
            with torch.no_grad():
                steps = torch.arange(0, width, 2, device=like.device, dtype=torch.float32)
                frequency = ROTARY_BASE ** (-steps / width)
                place = torch.arange(
                    offset, offset + length, device=like.device, dtype=torch.float32
                )
                angle = torch.outer(place, frequency)
                angle = torch.cat((angle, angle), dim=-1)
                self._rotary[key] = (angle.cos().to(like.dtype), angle.sin().to(like.dtype))
        return self._rotary[key]

    def alibi(self, like: Tensor, length: int, heads: int, first: int, total: int) -> Tensor:
        """Biases [1, heads, length, length] of heads first to first + heads of total."""
        key = (length, heads, first, like.dtype, like.device)
        if key not in self._alibi:
            with torch.no_grad():
                slopes = torch.tensor(alibi_slopes(total)[first : first + heads])
                slopes = slopes.to(device=like.device, dtype=torch.float32)
                place = torch.arange(length, device=like.device, dtype=torch.float32)
                distance = place[None, :] - place[:, None]
                bias = slopes[:, None, None] * distance[None]
                self._alibi[key] = bias.to(like.dtype).unsqueeze(0)
        return self._alibi[key]


def alibi_slopes(heads: int) -> list[float]:
    """Slopes of ALiBi (arXiv 2108.12409, section 3), for any number of heads."""
    power = 2 ** math.floor(math.log2(heads))
    base = 2 ** (-8 / power)
    slopes = [base ** (i + 1) for i in range(power)]
    if power < heads:
        between = 2 ** (-4 / power)
        slopes += [between ** (2 * i + 1) for i in range(heads - power)]
    return slopes


def rotate(x: Tensor, tables: Rotary, width: int) -> Tensor:
    """Applies rotary positions to the first `width` features of x [b, heads, s, d]."""
    cos, sin = tables
    if width < x.shape[-1]:
        return torch.cat((rotate(x[..., :width], tables, width), x[..., width:]), dim=-1)
    half = width // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin
