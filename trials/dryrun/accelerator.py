"""DeepSpeed's view of the fake GPU: an accelerator with streams, its own memory and fused ops."""

# ruff: noqa: D102  (the contract of each method is that of DeepSpeedAccelerator)
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

from trials.dryrun.device import NAME
from trials.dryrun.kernels import BUILDERS, lock_pages


class _Stream:
    """A stream: order is that of the program, so there is nothing to wait for."""

    def wait_stream(self, other: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def record_event(self, event: Any = None) -> "_Event":
        return _Event()

    def query(self) -> bool:
        return True


class _Event:
    """An event that has always happened."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def record(self, *_: Any) -> None:
        pass

    def wait(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0


class FakeGpu(CPU_Accelerator):  # type: ignore[misc]
    """Answers as the CUDA accelerator does where the answer changes what is allocated."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__()
        self._name = NAME
        self._communication_backend_name = "fake"
        self.total_bytes = total_bytes
        self.live_bytes: Callable[[], int] = lambda: 0

    def is_synchronized_device(self) -> bool:
        return False

    def use_host_timers(self) -> bool:
        return True

    def resolves_data_dependency(self) -> bool:
        return False

    def handles_memory_backpressure(self) -> bool:
        return False

    def device_name(self, device_index: int | None = None) -> str:
        return NAME if device_index is None else f"{NAME}:{device_index}"

    def device(self, device_index: int | None = None) -> Any:
        return nullcontext()

    def current_device(self) -> int:
        return 0

    def current_device_name(self) -> str:
        return f"{NAME}:0"

    def device_count(self) -> int:
        return 1

    @property
    def Stream(self) -> Any:  # noqa: N802
        return _Stream

    def stream(self, stream: Any) -> Any:
        return nullcontext()

    def current_stream(self, device_index: int | None = None) -> _Stream:
        return _Stream()

    def default_stream(self, device_index: int | None = None) -> _Stream:
        return _Stream()

    @property
    def Event(self) -> Any:  # noqa: N802
        return _Event

    def memory_allocated(self, device_index: int | None = None) -> int:
        return self.live_bytes()

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return self.live_bytes()

    def memory_reserved(self, device_index: int | None = None) -> int:
        return self.live_bytes()

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return self.live_bytes()

    def memory_stats(self, device_index: int | None = None) -> dict[str, int]:
        return {"num_alloc_retries": 0}

    def total_memory(self, device_index: int | None = None) -> int:
        return self.total_bytes

    def available_memory(self, device_index: int | None = None) -> int:
        return self.total_bytes - self.live_bytes()

    def is_fp16_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float, torch.half, torch.bfloat16]

    @property
    def IntTensor(self) -> Any:  # noqa: N802
        return lambda data: torch.tensor(data, dtype=torch.int, device=self.current_device_name())

    @property
    def FloatTensor(self) -> Any:  # noqa: N802
        return lambda data: torch.tensor(data, dtype=torch.float, device=self.current_device_name())

    def pin_memory(self, tensor: Any, make_copy: bool = True, match_shape: bool = True) -> Any:
        pinned = tensor.to("cpu")
        lock_pages(pinned)
        return pinned

    def is_pinned(self, tensor: Any) -> bool:
        return bool(tensor.device.type == "cpu")

    def on_accelerator(self, tensor: Any) -> bool:
        return bool(tensor.device.type == NAME)

    def create_op_builder(self, class_name: str) -> Any:
        builder = self.get_op_builder(class_name)
        return None if builder is None else builder()

    def get_op_builder(self, class_name: str) -> Any:
        return BUILDERS.get(class_name) or super().get_op_builder(class_name)
