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
    "/cluster/gpus_per_node": "--gpus-per-node",
    "/training/lora/rank": "--lora-rank",
    "/trial_id": "--name",
    "/router_bonus/weight": "--router-bonus",
    "/router_bonus/over": "--router-bonus-over",
}
"""Options that are not named like the field that they set."""

OWN_OPTION = {
    ("training", name)
    for name in (
        *("seq_len", "global_batch", "global_batch_tokens", "precision", "optimizer"),
        *("attention", "tokens", "lora"),
    )
}
"""Fields with an option of their own name; every other one is set by --field."""

TRIAL_OPTIONS = {
    *("name", "steps", "warmup_steps", "max_trials", "parallel", "confidence"),
    *("max_seconds", "sampler", "seed", "timeout_s", "step_limit_s", "data"),
}
"""Options of trials and campaigns, named like fields at the root."""


def option_of(pointer: str) -> str:
    """The option that sets a field, for messages."""
    if pointer in _OPTIONS:
        return _OPTIONS[pointer]
    first, *rest = pointer.strip("/").split("/")
    if first == "search" and rest[:1] == ["allow"]:
        return "--allow, --forbid"
    if len(rest) == 1 and (first == "search" or (first, rest[0]) in OWN_OPTION):
        return _flag(rest[0])
    if first in {"training", "cluster"} and rest:
        return "--field " + ".".join((first, *rest))
    if first == "adapt_micro_batch":
        return " ".join(["--adapt", *rest])
    return _flag(first) if first in TRIAL_OPTIONS else pointer or "request"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


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
