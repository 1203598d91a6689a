"""DeepSpeed's compiled operations, reduced to what they allocate: they update in place."""

from typing import Any


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
}
