"""DeepSpeed's compiled operations, reduced to what they allocate."""

import weakref
from typing import Any

import torch
from torch import Tensor


class FusedAdamKernels:
    """Multi-tensor Adam: reads and writes its lists, allocates nothing."""

    @staticmethod
    def multi_tensor_adam(*_: Any) -> None:
        """One launch."""


class CpuOptimizerKernels:
    """CPU Adam, Adagrad and Lion: vector loops over host memory."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class MultiTensorKernels:
    """Fused Lion and Lamb."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class AsyncIo:
    """Reads and writes of NVMe files: they take their time and allocate nothing."""

    class aio_handle:  # noqa: N801  (DeepSpeed's name)
        """One queue: requests are done when somebody waits for them."""

        def __init__(self, *_: Any, **__: Any):
            self.requests = 0

        def async_pread(self, buffer: Tensor, path: str, offset: int) -> int:
            """A read that has begun."""
            self.requests += 1
            return 0

        async_pwrite = async_pread

        def sync_pread(self, buffer: Tensor, path: str, offset: int) -> int:
            """A read that is done."""
            return 1

        sync_pwrite = sync_pread

        def wait(self) -> int:
            """How many requests were done since the last time."""
            done, self.requests = self.requests, 0
            return done

        def new_cpu_locked_tensor(self, numel: int, like: Tensor) -> Tensor:
            """Page-locked host memory."""
            made = torch.empty(numel, dtype=like.dtype, device="cpu")
            lock_pages(made)
            return made

        def free_cpu_locked_tensor(self, tensor: Tensor) -> bool:
            """Nothing to do: the tensor's own end frees it."""
            return True

        def is_pinned(self, tensor: Tensor) -> bool:
            """Whether the tensor is in page-locked memory."""
            return tensor.untyped_storage()._cdata in _locked


_locked: dict[int, Any] = {}


def lock_pages(tensor: Tensor) -> None:
    """Remembers that a host tensor is page-locked, while its storage lives."""
    storage = tensor.untyped_storage()
    key = storage._cdata
    _locked[key] = weakref.ref(storage, lambda _: _locked.pop(key, None))


def builder(kernels: type) -> type:
    """A class in the shape of DeepSpeed's op builders that loads the given kernels."""

    class Builder:
        """Loads without compiling."""

        NAME = name = kernels.__name__

        def load(self, verbose: bool = True) -> Any:
            """The kernels."""
            return kernels()

        def is_compatible(self, verbose: bool = True) -> bool:
            """Always."""
            return True

    return Builder


BUILDERS = {
    "FusedAdamBuilder": builder(FusedAdamKernels),
    "CPUAdamBuilder": builder(CpuOptimizerKernels),
    "CPUAdagradBuilder": builder(CpuOptimizerKernels),
    "CPULionBuilder": builder(CpuOptimizerKernels),
    "FusedLionBuilder": builder(MultiTensorKernels),
    "FusedLambBuilder": builder(MultiTensorKernels),
    "AsyncIOBuilder": builder(AsyncIo),
}
