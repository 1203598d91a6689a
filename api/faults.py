"""Which field of a request is wrong, what was given and what would do."""

from collections.abc import Iterable
from typing import Any

from planner.errors import Problem


def invalid_fields(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """The planner's problems as entries of `errors`."""
    return [
        {"pointer": p.pointer, "detail": p.message, "given": p.given, "wanted": p.wanted}
        for p in problems
    ]


def invalid_parameters(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Problems of query parameters as entries of `errors`."""
    return [
        {
            "location": "query",
            "parameter": p.pointer.removeprefix("/"),
            "detail": p.message,
            "given": p.given,
            "wanted": p.wanted,
        }
        for p in problems
    ]
