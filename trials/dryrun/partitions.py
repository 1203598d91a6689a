"""ZeRO-3 at large worlds: what it allocates, without a view of every rank's part.

The engine cuts each gradient that it reduces, and each buffer that it gathers into, into one view
a rank: at 1,024 ranks and some hundred parameters that is half a million views a step, which
allocate nothing. Here the buffers are made whole, and only this rank's parts are looked at.
"""

import importlib
import math
import sys
from typing import Any

import torch
from torch import Tensor


def look_at_own_parts() -> None:
    """Replaces the three loops over all ranks of a partition group; once in a process."""
    parameters: Any = importlib.import_module("deepspeed.runtime.zero.partition_parameters")
    stage3: Any = importlib.import_module("deepspeed.runtime.zero.stage3")
    # A global of the module stands before the builtin of that name.
    parameters.range = _range_up_to_own_rank
    handle = parameters.AllGatherCoalescedHandle
    handle.wait = _waiting(handle.wait, parameters.ZeroParamStatus.AVAILABLE, handle)
    stage3.reduce_scatter_coalesced = reduce_scatter_coalesced


def _range_up_to_own_rank(*bounds: int) -> range:
    """In the engine's `_all_gather_dtype`, which makes a list of views and uses its own one."""
    caller = sys._getframe(1)
    if caller.f_code.co_name == "_all_gather_dtype" and not caller.f_locals["use_secondary_tensor"]:
        return range(caller.f_locals["rank_in_group"] + 1)
    return range(*bounds)


def _waiting(wait: Any, available: Any, handle: Any) -> Any:
    """AllGatherCoalescedHandle.wait, which joins the ranks' parts of each parameter."""

    def waited(self: Any, handle_dependency: bool = True) -> None:
        if self.complete or self.quantization or self.use_secondary_tensor:
            wait(self, handle_dependency)
            return
        self.allgather_handle.wait()
        own = self.partitions[-1]
        for parameter in self.params:
            joined = torch.empty(parameter.ds_numel, dtype=own.dtype, device=own.device)
            parameter.data = joined.view(parameter.ds_shape).to(parameter.ds_tensor.dtype)
            parameter.ds_status = available
        self.complete = True
        if not handle_dependency:
            handle.data_buffer.append([own])  # keeps the gathered buffer, as the engine does

    return waited


@torch.no_grad()
def reduce_scatter_coalesced(tensors: list[Tensor], group: Any = None) -> list[Tensor]:
    """This rank's parts of the sums of gradients, with the storages of DeepSpeed's function.

    Those are a buffer in which all ranks' parts lie side by side, padded to equal sizes, and the
    pads themselves. A single gradient that needs no pad is reduced where it is.
    """
    collectives: Any = importlib.import_module("deepspeed.runtime.comm.coalesced_collectives")
    rank = collectives.dist.get_rank(group)
    ranks = collectives.dist.get_world_size(group)
    parts = [math.ceil(t.numel() / ranks) for t in tensors]
    like = tensors[0]
    if len(tensors) == 1 and like.numel() % ranks == 0:
        flat = like.view(-1)
    else:
        filling = [  # alive while the buffer is filled
            torch.empty(pad, dtype=t.dtype, device=t.device)
            for t, part in zip(tensors, parts, strict=True)
            for pad in pads(t.numel(), part, ranks)
        ]
        flat = torch.empty(sum(parts) * ranks, dtype=like.dtype, device=like.device)
        del filling
    flat.div_(ranks)
    own = flat.narrow(0, rank * sum(parts), sum(parts))
    collectives._torch_reduce_scatter_fn(flat, own, group=group)
    found, start = [], 0
    for tensor, part in zip(tensors, parts, strict=True):
        held = min(max(tensor.numel() - rank * part, 0), part)
        found.append(own.narrow(0, start, held))
        start += part
    return found


def pads(numel: int, part: int, ranks: int) -> list[int]:
    """Elements by which the last ranks' parts of a tensor are padded."""
    full = numel // part
    return [part - max(numel - rank * part, 0) for rank in range(full, ranks)]
