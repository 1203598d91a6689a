"""A fake GPU: a device named "gpu" beside the host's "cpu", on which tensors have no bytes.

PyTorch without a GPU aborts in the backward pass of fake CUDA tensors. Its private-use device has
no such checks, and since it is another device than "cpu", every copy that DeepSpeed makes between
GPU and host shows as what it is. Kernels without a formula for this device (flash attention) are
given by their allocations: see `trials.model.kernels`.
"""

from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

NAME = "gpu"
_registered = False


class _Rng:
    """What torch.utils.checkpoint and others ask of a device module."""

    @staticmethod
    def get_rng_state(*_: Any, **__: Any) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *_: Any, **__: Any) -> None:
        pass

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def set_device(*_: Any) -> None:
        pass

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(_: int) -> None:
        pass

    @staticmethod
    def synchronize(*_: Any) -> None:
        pass

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def _by_way_of_the_host(make: Any) -> Any:
    """`torch.tensor(values, device=gpu)` fills memory, which only the host has; then it moves."""

    def made(*args: Any, **kwargs: Any) -> Any:
        target = torch.device(kwargs.get("device") or "cpu")
        if target.type != NAME:
            tensor = make(*args, **kwargs)
            if args and isinstance(args[0], torch.Size):
                tensor.sizes = args[0]
            return tensor
        return make(*args, **{**kwargs, "device": "cpu"}).to(target)

    return made


def _read_sizes(tensor: Any, **_: Any) -> Any:
    """Sizes that DeepSpeed keeps as a tensor (partitioned activations) and reads again."""
    return np.array(tensor.sizes)


def register() -> None:
    """Registers the device in this process; may be called again."""
    global _registered  # noqa: PLW0603
    if _registered:
        return
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, backend_module=_Rng())
    # Who uses a tensor on which stream matters to the caching allocator alone.
    torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[assignment, method-assign]
    # Before DeepSpeed is imported, which keeps the original to put back after zero.Init.
    torch.tensor = _by_way_of_the_host(torch.tensor)
    torch.as_tensor = _by_way_of_the_host(torch.as_tensor)
    FakeTensor.numpy = _read_sizes  # type: ignore[assignment]
    _registered = True
