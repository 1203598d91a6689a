"""A few kernels alone, on every rank at once: what the device gives, before anything else runs.

On a GPU the data sheet is known and this says how near to it the card gets. A processor has no
data sheet for one process of several: this is what tells its products and its memory bandwidth.
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from trials.result import KernelMeasurement
from trials.trial_file import TrialFile

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
REPEATS = 5
CPU_TOKENS = 512
GPU_TOKENS = 4096
STREAM_BYTES = {"cpu": 2**25, "cuda": 2**29}
"""Larger than a cache."""


def probe(trial: TrialFile, device: torch.device) -> tuple[KernelMeasurement, ...]:
    """Products of the model's own widths, and a pass over memory."""
    tokens = GPU_TOKENS if device.type == "cuda" else CPU_TOKENS
    dtype = DTYPES[trial.training.precision]
    hidden, width = trial.model.hidden, _width(trial)
    found = [
        _product(shape, dtype, device)
        for shape in ((tokens, width, hidden), (tokens, hidden, width), (hidden, width, tokens))
    ]
    found.append(_stream(STREAM_BYTES[device.type], dtype, device))
    return tuple(found)


def _width(trial: TrialFile) -> int:
    kind = trial.model.kinds[trial.model.layer_pattern[-1]]
    if kind.mlp is not None:
        return kind.mlp.intermediate
    return kind.moe.intermediate if kind.moe is not None else trial.model.hidden


def _product(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> KernelMeasurement:
    m, n, k = shape
    left = torch.randn(m, k, device=device).to(dtype)
    right = torch.randn(k, n, device=device).to(dtype)
    seconds = _median(lambda: left @ right, device)
    return KernelMeasurement(kind="gemm", m=m, n=n, k=k, seconds=seconds)


def _stream(n_bytes: int, dtype: torch.dtype, device: torch.device) -> KernelMeasurement:
    """Half of the bytes are read, half written."""
    source = torch.zeros(n_bytes // 2, dtype=torch.uint8, device=device).view(dtype)
    target = torch.empty_like(source)
    seconds = _median(lambda: target.copy_(source), device)
    return KernelMeasurement(kind="stream", n_bytes=n_bytes, seconds=seconds)


def _median(call: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(REPEATS + 1):
        if dist.is_initialized():
            dist.barrier()
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return sorted(times[1:])[REPEATS // 2]
