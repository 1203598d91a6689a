"""Errors as a person reads them: the field, what was given, what would do; exit code 2."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console

from api.settings import SettingsError
from planner.errors import RequestError

P = ParamSpec("P")
R = TypeVar("R")

EXIT_INVALID = 2

_OPTIONS = {
    "/model": "--model",
    "/model/preset": "--model",
    "/cluster": "--cluster",
    "/cluster/preset": "--cluster",
    "/cluster/nodes": "--nodes",
    "/search/fixed": "--fix",
    "/search/limits": "--limit",
    "/training/lora/rank": "--lora-rank",
    "/trial_id": "--name",
}
"""Options that are not named like the field that they set."""

TRIAL_OPTIONS = {
    *("name", "steps", "warmup_steps", "max_trials", "parallel", "confidence"),
    *("max_seconds", "sampler", "seed"),
}
"""Options of trials and campaigns, named like fields at the root."""


def option_of(pointer: str) -> str:
    """The option that sets a field, for messages."""
    if pointer in _OPTIONS:
        return _OPTIONS[pointer]
    parts = pointer.strip("/").split("/")
    if len(parts) == 2 and parts[0] in {"training", "search"}:
        return "--" + parts[1].replace("_", "-")
    if parts[0] in TRIAL_OPTIONS:
        return "--" + parts[0].replace("_", "-")
    return pointer or "request"


def shown(command: Callable[P, R]) -> Callable[P, R]:
    """A command that says what is wrong with a request instead of a traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except RequestError as error:
            console = Console(stderr=True, highlight=False, soft_wrap=True)
            for problem in error.problems:
                console.print(
                    f"error: {option_of(problem.pointer)}: {problem.message}", markup=False
                )
            raise typer.Exit(EXIT_INVALID) from None
        except SettingsError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(EXIT_INVALID) from None

    return wrapped
