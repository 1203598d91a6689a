"""Print the configuration schema of the DeepSpeed that Python finds, from its own classes.

    python -m tests.tools.print_ds_schema > planner/check/data/schemas/<version>.json

For another version, unpack its source distribution and put it first on PYTHONPATH. Blocks that
are pydantic models are read from their fields; the others by handing DeepSpeed a dictionary that
records which keys are asked for, and with which default.
"""

import json
import logging
import os
import sys
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")
logging.disable(logging.CRITICAL)

PROBE = "meshwright_probe"
MISSING = object()
OUTSIDE_CONFIG = {
    # Read by deepspeed.initialize or the pipeline engine rather than by DeepSpeedConfig.
    "": {"sequence_parallel_size": None, "data_parallel_size": None, "vocabulary_size": None},
    "pipeline": {
        "stages": "auto",
        "partition": "best",
        "seed_layers": False,
        "activation_checkpoint_interval": 0,
        "pipe_partitioned": True,
        "grad_partitioned": True,
        "use_reentrant": None,
    },
    # Asked for only where `type` is given.
    "optimizer": {"params": None},
    "scheduler": {"params": None},
}
OPEN_BLOCKS = {
    "optimizer.params",
    "scheduler.params",
    "autotuning.arg_mappings",
    "data_efficiency.data_routing.random_ltd",
    "data_efficiency.data_sampling.curriculum_learning",
    "datastates_ckpt",
    "amp",
    "compression_training",
    "curriculum_learning",
    "elasticity",
    "progressive_layer_drop",
    "quantize_training",
    "sparse_attention",
}
"""Handed on as they are: their keys belong to the optimizer, the scheduler, the user's script."""


class Keys:
    """The keys of a Spy: `in` is recorded."""

    def __init__(self, spy: "Spy") -> None:
        self.spy = spy

    def __contains__(self, key: str) -> bool:
        return key in self.spy

    def __iter__(self) -> Iterator[str]:
        return iter(list(dict.keys(self.spy)))


class Spy(dict[str, Any]):
    """A dictionary that remembers what was asked of it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return True

    def __copy__(self) -> "Spy":
        return self

    def __contains__(self, key: object) -> bool:
        self.asked.setdefault(str(key), MISSING)
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.asked.setdefault(key, MISSING)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        if self.asked.get(key, MISSING) is MISSING:
            self.asked[key] = default
        return super().get(key, default)

    def keys(self) -> Any:
        return Keys(self)


def _load(document: dict[str, Any]) -> Exception | None:
    from deepspeed.runtime.config import DeepSpeedConfig

    try:
        DeepSpeedConfig(document)
    except Exception as refusal:
        return refusal
    return None


def _nest(path: str, leaf: Any, outer: type[dict[str, Any]] = dict) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        leaf = outer({part: leaf})
    leaf["train_micro_batch_size_per_gpu"] = 1
    return typing.cast(dict[str, Any], leaf)


def _subclasses(cls: type) -> Iterator[type]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _model_at(path: str) -> type | None:
    """The pydantic model that reads the block at `path`, None where a plain reader does."""
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel

    refusal = _load(_nest(path, {PROBE: 1}))
    if refusal is None or type(refusal).__name__ != "ValidationError":
        return None
    errors = [e for e in refusal.errors() if e["loc"][-1] == PROBE]  # type: ignore[attr-defined]
    if not errors:
        return None
    name = refusal.title  # type: ignore[attr-defined]
    model = next(c for c in _subclasses(DeepSpeedConfigModel) if c.__name__ == name)
    for part in errors[0]["loc"][:-1]:
        model = _inner(model.model_fields[part].annotation)  # type: ignore[attr-defined]
    return model


def _inner(annotation: Any) -> Any:
    args = [a for a in typing.get_args(annotation) if a is not type(None)]
    return _inner(args[0]) if args else annotation


def _type(annotation: Any, models: dict[str, type]) -> Any:  # noqa: PLR0911
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel

    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, UnionType):
        inner = [_type(a, models) for a in args if a is not type(None)]
        shape = inner[0] if len(inner) == 1 else {"union": inner}
        return {"optional": shape} if type(None) in args else shape
    if origin is typing.Literal:
        return {"literal": list(args)}
    if origin in (list, dict):
        return {origin.__name__: [_type(a, models) for a in args]}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        base = "int" if issubclass(annotation, int) else "str"
        return {"enum": list(dict.fromkeys(m.value for m in annotation)), "base": base}
    if isinstance(annotation, type) and issubclass(annotation, DeepSpeedConfigModel):
        models[annotation.__name__] = annotation
        return {"model": annotation.__name__}
    if annotation is Path:
        return "path"
    name = getattr(annotation, "__name__", str(annotation))
    return {"Any": "any", "object": "any", "Dict": "dict", "List": "list"}.get(name, name)


def _plain(value: Any) -> Any:  # noqa: PLR0911
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "model_dump"):
        return {}
    if value is MISSING:
        return None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return value if isinstance(value, float | str) else str(value)


def _fields(model: Any, models: dict[str, type]) -> dict[str, Any]:
    out = {}
    for name, info in model.model_fields.items():
        field: dict[str, Any] = {"type": _type(info.annotation, models)}
        if info.alias:
            field["alias"] = info.alias
        for bound in info.metadata:
            for word in ("ge", "gt", "le", "lt"):
                if getattr(bound, word, None) is not None:
                    field[word] = getattr(bound, word)
        default = info.get_default(call_default_factory=True)
        field["default"] = _plain(default)
        extra = info.json_schema_extra or {}
        if extra.get("deprecated"):
            field["deprecated"] = {
                "new": extra.get("new_param", ""),
                "sets": bool(extra.get("set_new_param", True)),
            }
        out[name] = field
    return out


def _plain_block(path: str, depth: int) -> dict[str, Any]:
    """Keys that a plain reader asks for in the block at `path`, with defaults."""
    spy = Spy({"enabled": True}) if path else Spy()
    document = _nest(path, spy) if path else spy
    if not path:
        document["train_micro_batch_size_per_gpu"] = 1
    _load(document)
    if path and "enabled" not in spy.asked:
        dict.pop(spy, "enabled")
    keys = {k: _plain(v) for k, v in spy.asked.items() if k not in (PROBE,)}
    keys |= OUTSIDE_CONFIG.get(path, {})
    blocks = {}
    if depth:
        for key in keys:
            inner = f"{path}.{key}" if path else key
            blocks[key] = _block(inner, keys[key], depth - 1)
    return {
        "open": path in OPEN_BLOCKS,
        "keys": {
            k: {"default": v} | ({"block": blocks[k]} if blocks.get(k) else {})
            for k, v in sorted(keys.items())
        },
    }


def _block(path: str, default: Any, depth: int) -> dict[str, Any] | None:
    model = _model_at(path)
    if model is not None:
        return {"model": model.__name__}
    if path in OPEN_BLOCKS:
        return {"open": True, "keys": {}}
    inner = _plain_block(path, depth)
    return inner if inner["keys"] else None


def schema() -> dict[str, Any]:
    """The schema of the installed DeepSpeed."""
    import deepspeed
    from deepspeed.runtime import config
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel

    removed = getattr(config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {})
    removed_zero = getattr(config, "_REMOVED_ZERO_CONFIG_KEYS", {})
    top = _plain_block("", 5)
    for key in removed:
        top["keys"].pop(key, None)
    models: dict[str, type] = {}
    found = {c.__name__: c for c in _subclasses(DeepSpeedConfigModel)}

    def collect(block: dict[str, Any]) -> None:
        for entry in block["keys"].values():
            inner = entry.get("block")
            if inner and "model" in inner:
                models[inner["model"]] = found[inner["model"]]
            elif inner:
                collect(inner)

    collect(top)
    printed: dict[str, Any] = {}
    while pending := [n for n in models if n not in printed]:
        for name in pending:
            printed[name] = {"fields": _fields(models[name], models)}
    return {
        "deepspeed": deepspeed.__version__.split("+")[0].strip(),
        "top": top,
        "models": dict(sorted(printed.items())),
        "removed": sorted(removed),
        "removed_zero": sorted(removed_zero),
    }


def main() -> None:
    """Print it as JSON."""
    json.dump(schema(), sys.stdout, separators=(",", ":"), sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
