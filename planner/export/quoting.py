"""Strings of users in files that a shell reads."""

import shlex
from collections.abc import Iterable


def words(arguments: Iterable[object]) -> list[str]:
    """Each argument as one shell word."""
    return [shlex.quote(str(a)) for a in arguments]


def lines(command: Iterable[object], per_line: Iterable[Iterable[object]]) -> str:
    """A command over several lines, joined by backslashes; every word is quoted."""
    rows = [" ".join(words(command)), *(" ".join(words(row)) for row in per_line)]
    return " \\\n  ".join(rows)
