"""Query parameters of the ranking, made from the columns of a plan and of a prediction."""

from collections.abc import Iterable
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from api.http.cursor import decode
from api.problems.parameters import ParameterError
from api.store.candidates import CandidateQuery, Measure
from api.wording import GIB
from cost_model.plans import Plan
from planner.errors import Problem
from planner.request.pointers import did_you_mean, problems_of

BYTES = {"memory_gib": "memory_bytes", "host_gib": "host_bytes"}
"""Parameters in GiB of what is kept in bytes."""

MEASURES = tuple(BYTES) + tuple(m for m in get_args(Measure) if not m.endswith("_bytes"))

SORTS = ("rank", *MEASURES)


class _Base(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=1000)
    """Candidates of a page."""
    cursor: str | None = Field(None, max_length=200)
    """From `next` of the page before."""
    sort: str = Field(
        "rank",
        json_schema_extra={"enum": [s for name in SORTS for s in (name, f"-{name}")]},
    )
    """A measure, the lowest first; with a minus the highest first."""
    fits: bool | None = None


def _fields() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, info in Plan.model_fields.items():
        kind = info.annotation if info.annotation in {bool, int, float} else str
        text = f"Only plans with one of these values of {name}."
        fields[name] = (list[kind] | None, Field(None, description=text))  # type: ignore[valid-type]
        if kind is int:
            fields[f"min_{name}"] = (int | None, Field(None, description=f"Least {name}."))
            fields[f"max_{name}"] = (int | None, Field(None, description=f"Most {name}."))
    for name in MEASURES:
        fields[f"min_{name}"] = (
            float | None,
            Field(None, allow_inf_nan=False, description=f"Least {name}."),
        )
        fields[f"max_{name}"] = (
            float | None,
            Field(None, allow_inf_nan=False, description=f"Most {name}."),
        )
    return fields


CandidateFilters: type[Any] = create_model("CandidateFilters", __base__=_Base, **_fields())
"""Every column of a plan by value, whole numbers and measures also by bounds."""


def _knobs(filters: Any) -> dict[str, tuple[Any, ...]]:
    knobs: dict[str, tuple[Any, ...]] = {}
    for name in Plan.model_fields:
        values = getattr(filters, name)
        if values is None:
            continue
        try:
            plans = [Plan.model_validate({name: value}) for value in values]
        except ValidationError as error:
            raise ParameterError(
                [Problem(name, f"got {values!r}", error.errors()[0]["msg"])]
            ) from error
        knobs[name] = tuple(p.model_dump(mode="json", include={name})[name] for p in plans)
    return knobs


def _bounds(filters: Any, end: Literal["min", "max"]) -> dict[str, float]:
    bounds: dict[str, float] = {}
    for name in MEASURES:
        value = getattr(filters, f"{end}_{name}")
        if value is not None:
            bounds[str(BYTES.get(name, name))] = value * GIB if name in BYTES else value
    return bounds


def _knob_bounds(filters: Any, end: Literal["min", "max"]) -> dict[str, float]:
    names = [name for name, info in Plan.model_fields.items() if info.annotation is int]
    values = {name: getattr(filters, f"{end}_{name}") for name in names}
    return {name: value for name, value in values.items() if value is not None}


def query_of(filters: Any) -> CandidateQuery:
    """The store's query of the parameters; raises ParameterError."""
    sort = filters.sort.removeprefix("-")
    if sort not in SORTS:
        raise ParameterError([Problem("sort", f"got {filters.sort!r}", did_you_mean(sort, SORTS))])
    after = None
    if filters.cursor is not None:
        order, value, rank = decode(filters.cursor, str, float, int)
        if order != filters.sort:
            given = f"a cursor of a list sorted by {order}"
            raise ParameterError([Problem("cursor", given, f"ask for sort={order}")])
        after = (value, rank)
    return CandidateQuery(
        knobs=_knobs(filters),
        knob_at_least=_knob_bounds(filters, "min"),
        knob_at_most=_knob_bounds(filters, "max"),
        at_least=_bounds(filters, "min"),
        at_most=_bounds(filters, "max"),
        fits=filters.fits,
        sort=BYTES.get(sort, sort),
        descending=filters.sort.startswith("-"),
        after=after,
        limit=filters.limit,
    )


def filters_of(pairs: Iterable[tuple[str, str]]) -> Any:
    """The parameters of a form, which sends what was left empty as well."""
    given: dict[str, Any] = {}
    for name, value in pairs:
        if value and name in Plan.model_fields:
            given.setdefault(name, []).append(value)
        elif value:
            given[name] = value
    try:
        return CandidateFilters.model_validate(given)
    except ValidationError as error:
        raise ParameterError(problems_of(error.errors(), CandidateFilters)) from error
