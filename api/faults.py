"""Which field of a request is wrong, what was given and what would do."""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from planner.errors import Problem
from planner.request.pointers import pointer


def invalid_fields(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """The planner's problems as entries of `errors`."""
    return [
        {"pointer": p.pointer, "detail": p.message, "given": p.given, "wanted": p.wanted}
        for p in problems
    ]


def parameter_of(pointer: str) -> str:
    """The query parameter that a pointer into their model leads to; of a list, the whole one."""
    return pointer.removeprefix("/").split("/")[0]


def invalid_parameters(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Problems of query parameters as entries of `errors`."""
    return [
        {
            "location": "query",
            "parameter": parameter_of(p.pointer),
            "detail": p.message,
            "given": p.given,
            "wanted": p.wanted,
        }
        for p in problems
    ]


def unexpected(error: Exception) -> str:
    """What a job's error says of a fault that nobody foresaw; the log has it with its place."""
    if isinstance(error, ValidationError):
        said = "; ".join(f"{pointer(*e['loc']) or '/'}: {e['msg']}" for e in error.errors()[:3])
    else:
        # Faults of the code say nothing that a reader could use.
        said = str(error) if isinstance(error, ValueError | RuntimeError | OSError) else ""
    return f"{said or 'an unforeseen fault'}; the log of the service says more"
