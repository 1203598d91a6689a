"""Whether DeepSpeed accepts a config: the same questions in the same order as its own class.

Source of the order and of each refusal: runtime/config.py of DeepSpeed 0.19.8. A test compares
the answer with the installed class on real files and on thousands of mutations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import hjson
from pydantic import BaseModel, ValidationError

from planner.check import schema as schemas
from planner.check.engine import blocks
from planner.check.engine.blocks import Refused
from planner.check.engine.models import models

BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


@dataclass(frozen=True)
class Refusal:
    """Why the engine stops at a config."""

    path: str
    why: str


@dataclass(frozen=True)
class Triple:
    """The three batch numbers as the engine completes them."""

    train: Any
    micro: Any
    accumulation: Any


def read(text: str) -> Any:
    """The document as DeepSpeed reads a file: Hjson, duplicate keys refused.

    Raises whatever the reader raises: the file is refused then.
    """
    return hjson.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate keys")
    return found


def refusal_of_text(
    text: str, world_size: int, version: str = schemas.DEFAULT_VERSION, *, cuda: bool = True
) -> Refusal | None:
    """Why DeepSpeed refuses a config file; None where it accepts it."""
    try:
        document = read(text)
    except Exception as error:
        return Refusal("", f"the file cannot be read: {error}"[:300])
    return refusal(document, world_size, version, cuda=cuda)


def refusal(
    document: Any, world_size: int, version: str = schemas.DEFAULT_VERSION, *, cuda: bool = True
) -> Refusal | None:
    """Why DeepSpeed refuses a config that is already a dictionary; None where it accepts it."""
    try:
        _load(document, world_size, schemas.load(version), cuda=cuda)
    except Refused as refused:
        return Refusal(refused.path, str(refused))
    except RecursionError:
        return Refusal("", "nested too deep")
    return None


def _load(document: Any, world_size: int, schema: schemas.Schema, *, cuda: bool) -> None:
    if not isinstance(document, dict):
        raise Refused("", "the config must be one block of keys")
    _removed(document, schema)
    ranks = data_parallel_ranks(document, world_size)
    blocks.communication_types(document)
    operation = blocks.allreduce_op(document)
    zero = _zero_block(document, schema)
    blocks.mapping(document, "activation_checkpointing")
    if "comms_logger" in document:
        _model(schema, "comms_logger", "CommsLoggerConfig", document["comms_logger"])
    for key, name in (
        ("tensorboard", "TensorBoardConfig"),
        ("wandb", "WandbConfig"),
        ("csv_monitor", "CSVConfig"),
        ("comet", "CometConfig"),
    ):
        if document.get(key, {}) != "auto":
            _model(schema, key, name, document.get(key, {}))
    fp16 = _model(schema, "fp16", "DeepSpeedFP16Config", document.get("fp16", {}))
    half = document.get("bf16")
    if half is None:
        half = document.get("bfloat16", {})
    bf16 = _model(schema, "bf16", "DeepSpeedBF16Config", half)
    if _of(fp16, "enabled") and _of(bf16, "enabled"):
        raise Refused("bf16.enabled", "fp16 and bf16 cannot both be enabled")
    blocks.autocast(document)
    params = blocks.named(document, "optimizer", text=True)
    blocks.named(document, "scheduler", text=False)
    blocks.flops_profiler(document)
    blocks.autotuning(document)
    _model(schema, "hybrid_engine", "HybridEngineConfig", document.get("hybrid_engine", {}))
    blocks.mapping(document, "pipeline")
    blocks.data_efficiency(document)
    blocks.checkpoint(document)
    blocks.data_types(document)
    blocks.aio(document, cuda=cuda)
    if "weight_quantization" in document:
        block = document["weight_quantization"]
        _model(schema, "weight_quantization", "WeightQuantConfig", block)
    compiled = _model(schema, "compile", "CompileConfig", document.get("compile", {}))
    _timers(document, schema)
    _model(schema, "tensor_parallel", "TPTrainingConfig", document.get("tensor_parallel", {}))
    blocks.expert_parallel(document)
    check_triple(document, ranks)
    _combinations(operation, zero, fp16, bf16, compiled)
    blocks.warnings(document, params)


def _removed(document: dict[str, Any], schema: schemas.Schema) -> None:
    for key in document:
        if key in schema.removed:
            raise Refused(key, f"{key} was removed from DeepSpeed {schema.version}")
    zero = document.get("zero_optimization")
    if isinstance(zero, dict):
        for key in zero:
            if key in schema.removed_zero:
                path = f"zero_optimization.{key}"
                raise Refused(path, f"{path} was removed from DeepSpeed {schema.version}")


def data_parallel_ranks(document: dict[str, Any], world_size: int) -> float:
    """Ranks that the engine divides the batch by: all of them over sequence_parallel_size."""
    if "sequence_parallel_size" not in document:
        return world_size
    size = document["sequence_parallel_size"]
    try:
        return float(world_size / size)
    except (TypeError, ZeroDivisionError, OverflowError):
        raise Refused("sequence_parallel_size", "must be a number above 0") from None


def _zero_block(document: dict[str, Any], schema: schemas.Schema) -> BaseModel | None:
    block = document.get("zero_optimization", {})
    if isinstance(block, bool):
        old: dict[str, Any] = {"stage": int(block)}
        if block:
            old["allgather_bucket_size"] = document.get("allgather_size", 5e8)
        block = old
    return _model(schema, "zero_optimization", "DeepSpeedZeroConfig", block)


def _model(schema: schemas.Schema, path: str, name: str, block: Any) -> BaseModel | None:
    """The block as the engine's class; None where this version has no such class."""
    if name not in schema.models:
        return None
    if not isinstance(block, dict):
        raise Refused(path, f"{path} must be a block of keys")
    if "self" in block:
        raise Refused(f"{path}.self", "unknown key")
    made = models(schema.version)[name]
    try:
        return made(**block)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join([path, *(str(p) for p in first["loc"])])
        raise Refused(where, str(first["msg"])) from None
    except (AssertionError, TypeError, ValueError, OverflowError, ArithmeticError) as error:
        raise Refused(path, str(error)) from None


def _timers(document: dict[str, Any], schema: schemas.Schema) -> None:
    timers = document.get("timers", {})
    if not isinstance(timers, dict):
        if isinstance(timers, str | list) and "throughput" not in timers:
            return
        raise Refused("timers", "timers must be a block of keys")
    throughput = timers.get("throughput", {})
    _model(schema, "timers.throughput", "DeepSpeedThroughputTimerConfig", throughput)


def _of(block: BaseModel | None, name: str) -> Any:
    return getattr(block, name, None)


def _combinations(
    operation: str,
    zero: BaseModel | None,
    fp16: BaseModel | None,
    bf16: BaseModel | None,
    compiled: BaseModel | None,
) -> None:
    stage = _of(zero, "stage") or 0
    if operation == "sum":
        if stage == 3:
            raise Refused("gradient_allreduce_op", "sum does not go with ZeRO stage 3")
        if _of(zero, "zenflow") is not None:
            raise Refused("gradient_allreduce_op", "sum does not go with ZenFlow")
        if _of(compiled, "deepcompile"):
            raise Refused("gradient_allreduce_op", "sum does not go with DeepCompile")
    for block, key in (
        (fp16, "fp16_master_weights_and_grads"),
        (bf16, "bf16_master_weights_and_grads"),
        (bf16, "bf16_optimizer_states"),
    ):
        if _of(block, key) and stage not in (1, 2, 3):
            raise Refused(f"{key[:4]}.{key}", f"{key} needs ZeRO stage 1, 2 or 3")
    if _of(bf16, "bf16_optimizer_states") and not _of(bf16, "bf16_master_weights_and_grads"):
        raise Refused("bf16.bf16_optimizer_states", "needs bf16_master_weights_and_grads")


def complete_triple(document: Mapping[str, Any], ranks: float) -> Triple:
    """The three batch numbers, the missing ones derived as the engine derives them.

    Raises Refused where it cannot: neither batch size given, or a value that is no number.
    """
    train, micro, steps = (document.get(k) for k in BATCH_KEYS)
    for key in BATCH_KEYS:
        value = document.get(key)
        if value is not None and not isinstance(value, int | float):
            raise Refused(key, f"{key} is {value!r:.40}, and must be a number")
    try:
        if train is not None and micro is not None:
            if steps is None:
                steps = train // micro
                steps //= ranks
        elif train is not None:
            if steps is not None:
                micro = train // ranks
                micro //= steps
            else:
                micro, steps = train // ranks, 1
        elif micro is not None:
            train = micro * (1 if steps is None else steps)
            train *= ranks
            steps = 1 if steps is None else steps
        else:
            raise Refused("train_batch_size", "neither train_batch_size nor micro-batch is given")
    except (TypeError, ZeroDivisionError, OverflowError, ValueError, MemoryError) as error:
        raise Refused("train_batch_size", f"cannot compute with the batch sizes: {error}") from None
    return Triple(train, micro, steps)


def check_triple(document: Mapping[str, Any], ranks: float) -> Triple:
    """The completed triple; raises Refused where the engine's assertions fail."""
    triple = complete_triple(document, ranks)
    try:
        for key, value in zip(
            BATCH_KEYS, (triple.train, triple.micro, triple.accumulation), strict=True
        ):
            if not value > 0:
                raise Refused(key, f"{key} comes to {value}, and must be above 0")
        if triple.train != triple.micro * triple.accumulation * ranks:
            raise Refused(
                "train_batch_size",
                f"{triple.train} is not {triple.micro} x {triple.accumulation} x {ranks:g}",
            )
    except (TypeError, OverflowError, MemoryError, ValueError) as error:
        raise Refused("train_batch_size", f"cannot compare the batch sizes: {error}") from None
    return triple
