"""Options for the knobs of a plan, one for each column, made from Plan itself."""

import inspect
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from api.cli.request import with_options
from cost_model.plans import Plan
from planner.errors import RequestError
from planner.request.pointers import problems_of

PANEL = "Plan"

DERIVED = {"nodes": "follows from the degrees"}
"""Knobs without an option: --nodes says what the cluster has."""


def _help(name: str) -> str:
    default = Plan.model_fields[name].default
    text = default.name.lower() if hasattr(default, "name") else str(default)
    if name == "dp":
        text = "all GPUs"
    if name == "grad_accum":
        text = "what global_batch needs"
    return f"Default: {text}."


def _parameter(name: str) -> inspect.Parameter:
    kind: Any = Plan.model_fields[name].annotation
    kind = kind if kind in {bool, int, float} else str
    flag = "--" + name.replace("_", "-")
    names = (f"{flag}/--no-{flag[2:]}",) if kind is bool else (flag,)
    option = typer.Option(*names, help=_help(name), rich_help_panel=PANEL, show_default=False)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _plan(**given: Any) -> Plan | None:
    values = {name: value for name, value in given.items() if value is not None}
    if not values:
        return None
    try:
        return Plan.model_validate(values)
    except ValidationError as error:
        raise RequestError(problems_of(error.errors(), Plan)) from error


takes_plan = with_options(
    inspect.Signature([_parameter(n) for n in Plan.model_fields if n not in DERIVED]),
    _plan,
    "plan",
)
"""Decorates a command with an argument `plan`: the Plan of its options, None without any."""
