"""The engine's long-lived tensors: what each of its attributes holds."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from trials.dryrun.tracker import LiveBytes

MASTER = (
    "single_partition_of_fp32_groups",
    "fp32_partitioned_groups_flat",
    "fp32_groups_flat_partition",
    "fp32_groups",
    "fp32_groups_flat",
)
BUCKETS = ("ipg_buckets", "_DeepSpeedZeroOptimizer_Stage3__ipg_bucket_flat_buffer", "ipg_buffer")
GRADIENTS = (
    "averaged_gradients",
    "grad_partitions_flat_buffer",
    "_DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition",
    "fp32_groups_gradients_flat",
    "fp32_groups_gradient_flat_partition",
    "all_grad_tensors",
    "accumulated_grads_in_cpu",
    "temp_grad_buffer_for_cpu_offload",
    "temp_grad_buffer_for_gpu_offload",
)
PARAMETERS = (
    "fp16_groups_flat",
    "bit16_groups_flat",
    "fp16_partitioned_groups_flat",
    "bf16_groups_flat",
)


def tag_states(live: LiveBytes, engine: Any) -> None:
    """Says of the engine's long-lived tensors what they are."""
    optimizer = engine.optimizer
    inner = getattr(optimizer, "optimizer", optimizer)
    for parameter in engine.module.parameters():
        live.tag([getattr(parameter, "ds_tensor", parameter.data)], "parameters")
        if parameter.grad is not None:
            live.tag([parameter.grad], "gradients")
    live.tag(engine.module.buffers(), "parameters")  # 4-bit bases are buffers
    for names, category in (
        (PARAMETERS, "parameters"),
        (MASTER, "master"),
        (BUCKETS, "buckets"),
        (GRADIENTS, "gradients"),
    ):
        for name in names:
            live.tag(tensors_in(getattr(optimizer, name, None)), category)
    for bucket in getattr(optimizer, "ipg_buckets", {}).values():
        live.tag(tensors_in(getattr(bucket, "buffer", None)), "buckets")
    for state in inner.state.values():
        live.tag(tensors_in(dict(state)), "optimizer")


def tensors_in(value: Any, depth: int = 4) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors_in(item, depth - 1)
