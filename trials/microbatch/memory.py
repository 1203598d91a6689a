"""Running out of memory together: one rank's failure is every rank's decision."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from trials.outcome import of_error

T = TypeVar("T")

Agree = Callable[[bool], bool]
"""Whether any rank failed, told whether this one did."""


class MicroBatchTooLarge(RuntimeError):  # noqa: N818
    """Some rank ran out of memory; all ranks raise this at the same place."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation failed, on the GPU or on the host."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    kind = of_error(type(error).__name__, str(error), "forward", None).kind
    return kind in ("out_of_gpu_memory", "out_of_host_memory")


def together(run: Callable[[], T], agree: Agree | None) -> T:
    """Runs a part of a step that no collective of the engine is in; all ranks call it.

    Raises MicroBatchTooLarge on every rank where any ran out of memory. Without `agree` only this
    rank is looked at.
    """
    failed = ""
    found: list[T] = []
    try:
        found.append(run())
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        failed = str(error) or type(error).__name__  # the error itself holds tensors
    if agree(bool(failed)) if agree is not None else failed:
        raise MicroBatchTooLarge(failed or "another rank ran out of memory")
    return found[0]


def discard_step(engine: Any) -> None:
    """Forgets the gradients of an unfinished optimizer step, also of an interrupted backward pass.

    The engine is then as after its last step. ZeRO 0, 1 and 2; raises ValueError for ZeRO 3, whose
    parameters are then gathered on some ranks and not on others, and for pipelines.
    """
    if engine.zero_optimization_partition_weights():
        raise ValueError("an interrupted step of ZeRO 3 leaves parameters gathered")
    if hasattr(engine, "num_stages"):
        raise ValueError("an interrupted pipeline schedule leaves messages on their way")
    engine.zero_grad()
    optimizer = engine.optimizer
    optimizer.zero_grad()
    if hasattr(optimizer, "averaged_gradients"):
        _discard_partitioned(optimizer)
    if hasattr(optimizer, "_backward_active_depth"):
        optimizer._backward_active_depth = 0
        optimizer.clear_backward_seen_flag()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _discard_partitioned(optimizer: Any) -> None:
    """What ZeRO 1 and 2 hold between micro-batches (runtime/zero/stage_1_and_2.py)."""
    optimizer._release_ipg_buffers()
    for bucket in optimizer.ipg_buckets.values():
        bucket.clear()
    for waiting in optimizer.previous_reduced_grads.values():
        waiting.clear()
    optimizer.extra_large_param_to_reduce.clear()
    optimizer.params_already_reduced = [False] * len(optimizer.params_already_reduced)
    optimizer._release_preflattened_grad_buffers()
    for held in (optimizer.averaged_gradients, optimizer.all_grad_tensors):
        for group in held:
            held[group] = None
    if optimizer.cpu_offload:
        optimizer.reset_cpu_buffers()
        optimizer._offload_accumulated_param_ids = set()
    optimizer.micro_step_id = -1
