"""Blocks that DeepSpeed reads as plain dictionaries: which values stop it.

Each function raises where the engine raises, on any JSON value, and returns what later checks
need. The messages are ours.
"""

from copy import copy
from typing import Any

DTYPES = frozenset(
    [
        "torch.float16",
        "fp16",
        "float16",
        "half",
        "torch.float32",
        "fp32",
        "float32",
        "float",
        "torch.int8",
        "int8",
        "torch.bfloat16",
        "bf16",
        "bfloat16",
    ]
)
TAG_VALIDATION = ("WARN", "IGNORE", "FAIL")
WRITERS = {"type": ("MOCK", "PYTHON", "FAST"), "data_parallel": ("REPLICA", "SOCKET", "MACHINE")}


class Refused(Exception):  # noqa: N818 - the engine refuses; nothing failed here
    """The engine would stop; the message says why, and `path` where."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(why)


def mapping(document: dict[str, Any], key: str) -> dict[str, Any]:
    """A block that must be a mapping where it is given."""
    block = document.get(key, {})
    if not isinstance(block, dict):
        raise Refused(key, f"{key} must be a block of keys")
    return block


def communication_types(document: dict[str, Any]) -> None:
    """communication_data_type and its sequence-parallel twin (config.py)."""
    for key in ("communication_data_type", "seq_parallel_communication_data_type"):
        value = document.get(key)
        if value is None:
            continue
        if not isinstance(value, str) or value.lower() not in ("fp16", "bf16", "fp32"):
            raise Refused(key, f"{key} is one of fp16, bf16, fp32")


def allreduce_op(document: dict[str, Any]) -> Any:
    """gradient_allreduce_op: mean or sum."""
    value = document.get("gradient_allreduce_op", "mean")
    if isinstance(value, str):
        value = value.lower()
    if value not in ("mean", "sum"):
        raise Refused("gradient_allreduce_op", "gradient_allreduce_op is mean or sum")
    return value


def autocast(document: dict[str, Any]) -> None:
    """torch_autocast: its dtype and its list of modules."""
    if "torch_autocast" not in document:
        return
    block = mapping(document, "torch_autocast")
    if "dtype" in block and not (isinstance(block["dtype"], str) and block["dtype"] in DTYPES):
        raise Refused("torch_autocast.dtype", "torch_autocast.dtype is no known type")
    if "lower_precision_safe_modules" in block:
        names = block["lower_precision_safe_modules"]
        if not isinstance(names, list | str | dict) or not all(isinstance(n, str) for n in names):
            raise Refused("torch_autocast.lower_precision_safe_modules", "must list names")


def named(document: dict[str, Any], key: str, *, text: bool) -> Any:
    """The `params` of optimizer or scheduler where a type is given; `text`: it must be a string."""
    if key not in document:
        return None
    block = mapping(document, key)
    kind = block.get("type")
    if text and kind is not None and not isinstance(kind, str):
        raise Refused(f"{key}.type", f"{key}.type is a name")
    return block.get("params") if kind is not None else None


def flops_profiler(document: dict[str, Any]) -> None:
    """flops_profiler.enabled is or-ed with wall_clock_breakdown, bit by bit."""
    enabled = mapping(document, "flops_profiler").get("enabled", False)
    clock = document.get("wall_clock_breakdown", False)
    try:
        clock | enabled
    except TypeError:
        path = "wall_clock_breakdown" if not isinstance(clock, int) else "flops_profiler.enabled"
        raise Refused(path, f"{path} is true or false") from None


def autotuning(document: dict[str, Any]) -> None:
    """autotuning: its two folders must not be empty."""
    block = mapping(document, "autotuning")
    for key in ("results_dir", "exps_dir"):
        if not block.get(key, True):
            raise Refused(f"autotuning.{key}", f"autotuning.{key} must not be empty")
    info = block.get("model_info")
    if info is not None and not isinstance(info, dict):
        raise Refused("autotuning.model_info", "autotuning.model_info must be a block of keys")


def data_efficiency(document: dict[str, Any]) -> None:
    """data_efficiency and what lies below it."""
    block = mapping(document, "data_efficiency")
    sampling = mapping(block, "data_sampling")
    curriculum = mapping(sampling, "curriculum_learning")
    if curriculum.get("enabled", False) and "curriculum_metrics" not in curriculum:
        raise Refused(
            "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics",
            "curriculum learning is on and has no metrics",
        )
    batching = copy(sampling.get("dynamic_batching", {}))
    path = "data_efficiency.data_sampling.dynamic_batching"
    if not isinstance(batching, dict):
        raise Refused(path, f"{path} must be a block of keys")
    numbers = ["min_batch_size", "max_batch_size"]
    if batching.get("enabled", False):
        if "max_tokens" not in batching:
            raise Refused(f"{path}.max_tokens", "dynamic batching is on and has no max_tokens")
        numbers.append("max_tokens")
    for key in numbers:
        try:
            int(batching.get(key, 1))
        except (TypeError, ValueError, OverflowError):
            raise Refused(f"{path}.{key}", f"{key} is an integer") from None
    mapping(mapping(block, "data_routing"), "random_ltd")


def checkpoint(document: dict[str, Any]) -> None:
    """checkpoint: tag_validation, parallel_write and the writer."""
    block = mapping(document, "checkpoint")
    mode = block.get("tag_validation", "WARN")
    if not isinstance(mode, str) or mode.upper() not in TAG_VALIDATION:
        raise Refused("checkpoint.tag_validation", "tag_validation is Warn, Ignore or Fail")
    stage = mapping(block, "parallel_write").get("pipeline_stage", False)
    if stage not in (True, False):
        raise Refused("checkpoint.parallel_write.pipeline_stage", "must be true or false")
    writer = block.get("writer")
    if writer is None:
        return
    if not isinstance(writer, dict):
        raise Refused("checkpoint.writer", "checkpoint.writer must be a block of keys")
    for key, known in WRITERS.items():
        value = writer.get(key)
        if value is not None and (not isinstance(value, str) or value.upper() not in known):
            raise Refused(f"checkpoint.writer.{key}", f"{key} is one of {', '.join(known)}")


def data_types(document: dict[str, Any]) -> None:
    """data_types.keep_in_fp32_modules is "auto" or a list of names."""
    names = mapping(document, "data_types").get("keep_in_fp32_modules", "auto")
    if names != "auto" and not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
        raise Refused("data_types.keep_in_fp32_modules", 'must be "auto" or a list of names')


def aio(document: dict[str, Any], *, cuda: bool) -> None:
    """aio.use_gds needs a CUDA device (swap_tensor/aio_config.py)."""
    block = document.get("aio")
    if block is None:
        return
    if not isinstance(block, dict):
        raise Refused("aio", "aio must be a block of keys")
    if block.get("use_gds", False) and not cuda:
        raise Refused("aio.use_gds", "GPUDirect Storage needs a CUDA device")


def expert_parallel(document: dict[str, Any]) -> None:
    """expert_parallel (AutoEP): a block, without a load-balance coefficient."""
    block = document.get("expert_parallel")
    if not block:
        return
    if not isinstance(block, dict):
        raise Refused("expert_parallel", "expert_parallel must be a block of keys")
    if block.get("load_balance_coeff") is not None:
        raise Refused("expert_parallel.load_balance_coeff", "not supported in this build")


def warnings(document: dict[str, Any], params: Any) -> None:
    """Two warnings of the engine that compute with what was given, and so can raise."""
    vocabulary = document.get("vocabulary_size")
    if vocabulary:
        try:
            vocabulary % 8
        except (TypeError, ValueError):
            raise Refused("vocabulary_size", "vocabulary_size is an integer") from None
    if params is None:
        return
    if not isinstance(params, dict):
        raise Refused("optimizer.params", "optimizer.params must be a block of keys")
    norm = params.get("max_grad_norm", 0)
    if not isinstance(norm, int | float):
        raise Refused("optimizer.params.max_grad_norm", "max_grad_norm is a number")
