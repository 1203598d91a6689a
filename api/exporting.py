"""Writes a plan in a format, with what the request says beside it."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cost_model import catalogue
from cost_model.plans import Plan
from planner.errors import Problem, RequestError
from planner.export.registry import Exported, ExportOptions, export
from planner.request import Resolved


def _config_json(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The config.json of the request's model, where it has one."""
    model = request["model"]
    if not isinstance(model, Mapping):
        return None
    if model.get("config") is not None:
        return dict(model["config"])
    preset = model.get("preset")
    return None if preset is None else dict(catalogue.model_config(preset))


def exported(
    name: str,
    resolved: Resolved,
    plan: Plan,
    request: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Exported:
    """The files of one format; NotExportable where it cannot express the plan.

    options: fields of ExportOptions; RequestError for one that is unknown or wrong.
    """
    try:
        chosen = ExportOptions.model_validate(
            {"model_config_json": _config_json(request)} | dict(options)
        )
    except ValidationError as error:
        raise RequestError(
            Problem(f"/export/{'/'.join(map(str, e['loc']))}", f"got {e['input']!r}", e["msg"])
            for e in error.errors()
        ) from error
    return export(name, resolved.model, resolved.cluster, resolved.training, plan, chosen)
