"""Linear maps, with low-rank adapters where the run trains those (arXiv 2106.09685)."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_model.specs import Lora
from trials.model.build import Build
from trials.parallel.tensor import ColumnParallelLinear, RowParallelLinear

Part = Literal["attention", "mlp", "expert"]


def _adapted(build: Build, part: Part) -> Lora | None:
    lora = build.lora
    if lora is None or (lora.targets == "attention" and part != "attention"):
        return None
    return lora


def _frozen_base(build: Build) -> bool:
    return build.lora is not None and build.lora.quantized_base


def linear_column(
    build: Build, part: Part, n_in: int, n_out: int, bias: bool, unit: int = 1
) -> nn.Module:
    """A matrix whose output features are cut over the tensor-parallel ranks, by `unit`."""
    tp = build.mesh.tp
    base: nn.Module
    if tp.size == 1:
        base = nn.Linear(n_in, n_out, bias=bias)
    else:
        base = ColumnParallelLinear(
            n_in, n_out, bias, tp, sequence_parallel=build.sequence_parallel, unit=unit
        )
    return _with_adapter(build, part, base, n_in, n_out)


def linear_row(build: Build, part: Part, n_in: int, n_out: int, bias: bool) -> nn.Module:
    """A matrix whose input features are cut over the tensor-parallel ranks."""
    tp = build.mesh.tp
    base: nn.Module
    if tp.size == 1:
        base = nn.Linear(n_in, n_out, bias=bias)
    else:
        base = RowParallelLinear(n_in, n_out, bias, tp, sequence_parallel=build.sequence_parallel)
    return _with_adapter(build, part, base, n_in, n_out)


def _with_adapter(build: Build, part: Part, base: nn.Module, n_in: int, n_out: int) -> nn.Module:
    if build.lora is None:
        return base
    if build.mesh.tp.size > 1:
        raise ValueError("LoRA with tensor parallelism is not built in trials")
    base.requires_grad_(False)
    inner: nn.Module = QuantizedLinear(n_in, n_out, base) if _frozen_base(build) else base
    lora = _adapted(build, part)
    return inner if lora is None else LoraLinear(inner, n_in, n_out, lora.rank)


def freeze_base(module: nn.Module, build: Build) -> None:
    """Under LoRA only adapters are trained: everything else needs no gradient."""
    if build.lora is None:
        return
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(".lora_a." in name or ".lora_b." in name)


class LoraLinear(nn.Module):
    """base(x) + B A x with a frozen base; B starts at zero, so training starts at the base."""

    def __init__(self, base: nn.Module, n_in: int, n_out: int, rank: int):
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(n_in, rank, bias=False)
        self.lora_b = nn.Linear(rank, n_out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in]."""
        y: Tensor = self.base(x) + self.lora_b(self.lora_a(x))
        return y


NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""The sixteen values of 4-bit NormalFloat (arXiv 2305.14314, appendix E)."""
NF4_BLOCK = 64
"""Weights that share one constant (arXiv 2305.14314, section 3)."""


class _Dequantized(torch.autograd.Function):
    """x W^T with W made from 4 bits in each pass and never kept."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, codes: Tensor, scales: Tensor, shape: tuple[int, int]
    ) -> Tensor:
        ctx.save_for_backward(codes, scales)
        ctx.shape = shape
        return functional.linear(x, dequantize(codes, scales, shape, x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        codes, scales = ctx.saved_tensors
        return grad @ dequantize(codes, scales, ctx.shape, grad.dtype), None, None, None


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes [n / 2] of two 4-bit values each, and the largest magnitude of each block."""
    blocks = weight.detach().float().reshape(-1, NF4_BLOCK)
    scales = blocks.abs().amax(-1, keepdim=True)
    levels = torch.tensor(NF4, device=weight.device)
    nearest = (blocks / scales.clamp_min(1e-12)).unsqueeze(-1).sub(levels).abs().argmin(-1)
    flat = nearest.to(torch.uint8).flatten()
    return flat[0::2] * 16 + flat[1::2], scales.flatten()


def dequantize(codes: Tensor, scales: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """The weights [out, in] in `dtype`; on the fake device only their allocation."""
    if codes.device.type == "gpu":
        return torch.empty(shape, dtype=dtype, device=codes.device)
    levels = torch.tensor(NF4, device=codes.device)
    both = torch.stack((codes // 16, codes % 16), dim=-1).flatten().long()
    blocks = levels[both].reshape(-1, NF4_BLOCK) * scales.unsqueeze(-1)
    return blocks.reshape(shape).to(dtype)


class QuantizedLinear(nn.Module):
    """A frozen matrix held in 4-bit NormalFloat (QLoRA).

    The block constants are fp32, without the second quantisation of arXiv 2305.14314, section 3,
    which would save 0.37 bits a weight.
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, n_in: int, n_out: int, base: nn.Module):
        super().__init__()
        weight = base.weight
        self.shape = (n_out, n_in)
        if not isinstance(weight, Tensor):
            raise TypeError("a quantized base needs a weight")
        if weight.device.type == "gpu":
            codes = torch.empty(weight.numel() // 2, dtype=torch.uint8, device=weight.device)
            scales = torch.empty(
                weight.numel() // NF4_BLOCK, dtype=torch.float32, device=weight.device
            )
        else:
            codes, scales = quantize(weight)
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)
        self.bias = base.bias

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in]."""
        y: Tensor = _Dequantized.apply(x, self.codes, self.scales, self.shape)
        return y if self.bias is None else y + self.bias  # type: ignore[operator]
