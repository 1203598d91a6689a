"""Query parameters: the model of a route's, and the error of one that cannot be used."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args, get_origin

from fastapi import Request
from pydantic import BaseModel

from api.faults import parameter_of
from planner.errors import Problem, RequestError
from planner.request.pointers import models_of


class ParameterError(RequestError):
    """A query parameter that cannot be used; its problems name parameters, not fields."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        super().__init__(replace(p, pointer=parameter_of(p.pointer)) for p in problems)


def query_model(request: Request) -> type[BaseModel]:
    """The model of the route's query parameters; an empty one where it has none."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    for field in getattr(dependant, "query_params", ()):
        for model in models_of(field.field_info.annotation):
            return model
    return BaseModel


def _many(annotation: Any) -> bool:
    """Whether a parameter may be given several times."""
    return get_origin(annotation) is list or any(_many(arg) for arg in get_args(annotation))


def given_once(request: Request) -> None:
    """Refuses a parameter that is given twice where one value counts; raises ParameterError."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    fields = query_model(request).model_fields
    repeated = [
        Problem(name, f"given {count} times", "give it once")
        for name, count in counts.items()
        if count > 1 and name in fields and not _many(fields[name].annotation)
    ]
    if repeated:
        raise ParameterError(repeated)
