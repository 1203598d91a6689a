"""A partial plan in the address: knobs as parameters, or all of them in one."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from api.problems.parameters import ParameterError
from api.unique_json import parsed_json
from cost_model.plans import Plan
from planner.errors import Problem, RequestError
from planner.explain import partial_plan
from planner.request.pointers import problems_of


def _fields() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, info in Plan.model_fields.items():
        kind = info.annotation if info.annotation in {bool, int, float} else str
        fields[name] = (kind | None, Field(None, description=f"Why not this {name}."))
    return fields


class _Base(BaseModel):
    model_config = ConfigDict(extra="forbid")


Knobs: type[Any] = create_model("Knobs", __base__=_Base, **_fields())
"""Every column of a plan as an optional parameter."""


def knobs_of(given: Mapping[str, str]) -> Any:
    """The parameters of a form; raises ParameterError."""
    try:
        return Knobs.model_validate(given)
    except ValidationError as error:
        raise ParameterError(problems_of(error.errors(), Knobs)) from error


def asked_of(knobs: Any) -> dict[str, Any]:
    """The columns that were given; raises ParameterError where none was, or for a bad value."""
    given = {name: getattr(knobs, name) for name in sorted(knobs.model_fields_set)}
    if not given:
        wanted = "name at least one knob, such as tp=8"
        raise ParameterError([Problem("tp", "no knob is given", wanted)])
    try:
        return partial_plan(given)
    except RequestError as error:
        raise ParameterError(
            Problem(p.pointer.removeprefix("/explain/"), p.given, p.wanted) for p in error.problems
        ) from error


def parsed(text: str) -> dict[str, Any]:
    """`tp=8,zero_stage=3`, or the same as a JSON object; raises ParameterError for `explain`."""
    try:
        return partial_plan(columns(text, "/explain"))
    except RequestError as error:
        raise ParameterError(
            Problem("explain", f"{p.pointer.removeprefix('/explain/')}: {p.given}", p.wanted)
            for p in error.problems
        ) from error


def columns(text: str, pointer: str) -> dict[str, Any]:
    """`tp=8,zero_stage=3` or a JSON object as plain data; RequestError names the pointer."""
    wanted = "write tp=8,zero_stage=3 or a JSON object"
    if text.lstrip().startswith("{"):
        try:
            return dict(parsed_json(text, pointer))
        except RequestError:
            raise
        except (ValueError, RecursionError) as error:
            raise RequestError([Problem(pointer, f"not JSON: {error}", wanted)]) from error
    given: dict[str, Any] = {}
    for pair in text.split(","):
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise RequestError([Problem(pointer, f"got {text!r}", wanted)])
        key = name.strip().replace("-", "_")
        if key in given:
            raise RequestError([Problem(pointer, f"{key} is given twice", "give it once")])
        given[key] = _value(value.strip())
    return given


def _value(text: str) -> Any:
    """JSON where it can be read so, else text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
