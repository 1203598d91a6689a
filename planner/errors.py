"""What is wrong with a request, said so that the user can repair it."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One fault of a request."""

    pointer: str
    """JSON pointer (RFC 6901) of the field, from the root of the request."""
    given: str
    """What was given, in words."""
    wanted: str
    """What would do."""

    @property
    def message(self) -> str:
        """Both in one line."""
        return f"{self.given}; {self.wanted}"


class RequestError(ValueError):
    """The only exception that a bad request raises: every fault found, each with its place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(f"{p.pointer or '/'}: {p.message}" for p in self.problems)
