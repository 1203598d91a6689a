"""Activation functions by the names of config.json."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from trials.model.unsupported import UnsupportedModel


def _tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _squared_relu(x: Tensor) -> Tensor:
    return functional.relu(x).square()


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _xielu(x: Tensor) -> Tensor:
    """xIELU (arXiv 2411.13010) with its two trained slopes at their starting value of 0.8."""
    negative = torch.expm1(x.clamp_max(-1e-6)) - x
    return 0.8 * torch.where(x > 0, x * x, negative) + 0.5 * x


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
    "gelu_new": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "quick_gelu": _quick_gelu,
    "relu": functional.relu,
    "relu2": _squared_relu,
    "tanh": torch.tanh,
    "xielu": _xielu,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function of that name; raises UnsupportedModel where there is none."""
    try:
        return _FUNCTIONS[name]
    except KeyError:
        raise UnsupportedModel(f"activation {name!r} is not built in trials") from None
