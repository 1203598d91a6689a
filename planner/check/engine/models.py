"""The pydantic models of one DeepSpeed version, rebuilt from its printed schema.

Coercion (a string "3" for a stage, 5e8 for an integer) is pydantic's own, here as there. What the
schema cannot say is in `after` and `before`: the validators of the classes, by class name.
"""

import math
from collections.abc import Callable
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from planner.check import schema as schemas


class Tensor:
    """Stands where a torch object is expected: no JSON value is one."""


class Base(BaseModel):
    """The engine's base: "auto" is dropped, unknown keys are refused, old names are mapped."""

    model_config = ConfigDict(
        validate_default=True,
        validate_assignment=True,
        use_enum_values=True,
        populate_by_name=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        protected_namespaces=(),
    )

    def __init__(self, strict: bool = False, **data: Any) -> None:
        """`strict` is a parameter there as well, so a key of that name is swallowed."""
        if not strict:
            data = {k: v for k, v in data.items() if v != "auto" or k == "replace_method"}
        super().__init__(**data)
        self._map_old_names()

    def _map_old_names(self) -> None:
        for name, info in type(self).model_fields.items():
            extra = info.json_schema_extra
            old = extra.get("deprecated") if isinstance(extra, dict) else None
            if not isinstance(old, dict) or name not in self.model_fields_set:
                continue
            new = str(old["new"])
            if not new or not old["sets"]:
                continue
            value = getattr(self, name)
            if new in self.model_fields_set:
                raise AssertionError(f"both the deprecated '{name}' and its replacement '{new}'")
            if new.startswith("offload_"):
                inner = _inner_model(type(self).model_fields[new].annotation)
                value = inner(device="cpu") if value else None
            setattr(self, new, value)


def _inner_model(annotation: Any) -> type[BaseModel]:
    found: type[BaseModel] = next(a for a in annotation.__args__ if a is not type(None))
    return found


def _zero(block: Any) -> None:
    """Checks after the fields of zero_optimization (runtime/zero/config.py)."""
    if getattr(block, "compute_grad_norm", True) is False and block.stage not in (1, 2):
        raise ValueError("compute_grad_norm=false needs ZeRO stage 1 or 2")
    offload = block.offload_optimizer
    if offload and offload.ratio < 1.0 and block.stage != 3:
        raise ValueError("offload_optimizer.ratio below 1 needs ZeRO stage 3")


def _zenflow(block: Any) -> None:
    """Checks of zenflow (runtime/zenflow/zenflow_config.py)."""
    if block.select_strategy not in ("auto", "step", "epoch"):
        raise ValueError("zenflow.select_strategy is auto, step or epoch")
    for name in ("select_interval", "update_interval"):
        value = getattr(block, name)
        if isinstance(value, str) and value != "auto":
            raise ValueError(f"zenflow.{name} is 'auto' or a number")
    if isinstance(block.update_interval, int) and block.update_interval < 1:
        raise ValueError("zenflow.update_interval is at least 1")


def _fp16(block: Any) -> None:
    """Dynamic loss scaling needs a window and a floor (runtime/precision_config.py)."""
    if block.enabled and block.loss_scale == 0:
        for name in ("loss_scale_window", "min_loss_scale"):
            if getattr(block, name) <= 0:
                raise ValueError(f"fp16.{name} must be above 0 with dynamic loss scaling")


def _fp16_before(values: Any) -> Any:
    """Numbers of fp16 are checked before coercion: no booleans, nothing infinite."""
    if not isinstance(values, dict):
        return values
    values = dict(values)
    if "loss_scale" in values:
        scale = values["loss_scale"]
        if isinstance(scale, bool):
            raise ValueError("fp16.loss_scale is a number")
        try:
            scale = float(scale)
        except TypeError:
            raise ValueError("fp16.loss_scale is a number") from None
        if not math.isfinite(scale) or scale < 0:
            raise ValueError("fp16.loss_scale is a finite number, 0 or more")
        values["loss_scale"] = scale
    for name in ("loss_scale_window", "min_loss_scale"):
        value = values.get(name, 0)
        if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"fp16.{name} is a finite integer")
        try:
            int(value)
        except TypeError:
            raise ValueError(f"fp16.{name} is an integer") from None
    return values


def _leaf_before(values: Any) -> Any:
    """A single name may stand for a list of one; null for nothing."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError("leaf_module is a mapping")
    names = ("classes", "names", "name_suffixes")
    return {k: [v] if k in names and isinstance(v, str) else v for k, v in values.items()}


AFTER: dict[str, Callable[[Any], None]] = {
    "DeepSpeedZeroConfig": _zero,
    "ZenFlowConfig": _zenflow,
    "DeepSpeedFP16Config": _fp16,
}
BEFORE: dict[str, Callable[[Any], Any]] = {
    "DeepSpeedFP16Config": _fp16_before,
    "DeepSpeedZeroLeafModuleConfig": _leaf_before,
}
SIMPLE: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "list": list,
    "dict": dict,
    "tuple": tuple,
    "path": Path,
    "any": object,
    "dtype": Tensor,
}


class _Builder:
    """Makes the classes of one schema, inner ones first."""

    def __init__(self, models: dict[str, Any]) -> None:
        self.models = models
        self.made: dict[str, type[Base]] = {}

    def model(self, name: str) -> type[Base]:
        if name not in self.made:
            fields = {key: self._field(spec) for key, spec in self.models[name]["fields"].items()}
            validators: dict[str, Any] = {}
            if name in BEFORE:
                before = BEFORE[name]
                validators["before"] = model_validator(mode="before")(
                    classmethod(lambda cls, values: before(values))  # type: ignore[arg-type]
                )
            if name in AFTER:
                after = AFTER[name]
                validators["after"] = model_validator(mode="after")(_after(after))
            self.made[name] = create_model(name, __base__=Base, __validators__=validators, **fields)
        return self.made[name]

    def _field(self, spec: dict[str, Any]) -> Any:
        bounds = [
            word(spec[key])
            for key, word in (("ge", Ge), ("gt", Gt), ("le", Le), ("lt", Lt))
            if key in spec
        ]
        kind = self._kind(spec["type"])
        annotation = Annotated[(kind, *bounds)] if bounds else kind
        default = Tensor() if spec["type"] == "dtype" else spec["default"]
        extra = {"deprecated": spec["deprecated"]} if "deprecated" in spec else None
        return annotation, Field(default, alias=spec.get("alias"), json_schema_extra=extra)

    def _kind(self, kind: Any) -> Any:  # noqa: PLR0911
        if isinstance(kind, str):
            return SIMPLE[kind]
        if "enum" in kind:
            base = int if kind["base"] == "int" else str
            return Enum("Choice", {f"v{v}": v for v in kind["enum"]}, type=base)
        ((word, inner),) = kind.items()
        if word == "optional":
            return Optional[self._kind(inner)]  # noqa: UP045
        if word == "union":
            return Union[tuple(self._kind(k) for k in inner)]  # noqa: UP007
        if word == "literal":
            return Literal[tuple(inner)]
        if word == "list":
            return list[self._kind(inner[0])] if inner else list  # type: ignore[misc]
        if word == "dict":
            return dict[tuple(self._kind(k) for k in inner)] if inner else dict  # type: ignore[misc]
        return self.model(inner)


def _after(check: Callable[[Any], None]) -> Any:
    def run(self: Any) -> Any:
        check(self)
        return self

    return run


@cache
def models(version: str) -> dict[str, type[Base]]:
    """Every class of a version's schema, by its name there."""
    schema = schemas.load(version)
    builder = _Builder(schema.models)
    return {name: builder.model(name) for name in schema.models}
