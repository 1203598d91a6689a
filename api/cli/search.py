"""Options of a search, shared by every command that ranks plans."""

import inspect
import sys
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from api.cli.request import assignments, with_options
from planner.errors import Problem, RequestError
from planner.request import Resolved
from planner.search import SearchResult, search

PANEL = "Search"


def limits(pairs: list[str]) -> dict[str, Any]:
    """`tp=1..4`, `tp=..4`, `tp=2..` or `tp=2,4` as limits."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        try:
            if not sign:
                raise ValueError
            if ".." in text:
                low, _, high = text.partition("..")
                ends = {"min": low, "max": high}
                limit: dict[str, Any] = {end: int(v) for end, v in ends.items() if v}
            else:
                limit = {"values": [int(v) for v in text.split(",")]}
        except ValueError:
            wanted = "write tp=1..4, tp=..4 or tp=2,4"
            raise RequestError([Problem("/search/limits", f"got {pair!r}", wanted)]) from None
        found[name.strip().replace("-", "_")] = limit
    return found


def searched(resolved: Resolved, quiet: bool) -> SearchResult:
    """The result, with a line of progress on the terminal."""
    show = not quiet and sys.stderr.isatty()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar if show else nullcontext():
        task = bar.add_task("searching", total=None)

        def progress(evaluated: int, known: int) -> None:
            bar.update(task, description=f"{evaluated:,} of {known:,} legal plans evaluated")

        return search(resolved, progress)


def _options(
    *,
    objective: Annotated[
        str,
        typer.Option(
            help="throughput, cost, latency, fewest_gpus, largest_micro_batch, largest_sequence, "
            "pareto.",
            rich_help_panel=PANEL,
        ),
    ] = "throughput",
    deadline_days: Annotated[
        float | None, typer.Option(help="For fewest_gpus, with --tokens.", rich_help_panel=PANEL)
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(help="A knob held at a value, such as zero_stage=3.", rich_help_panel=PANEL),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(help="Bounds of a knob, such as tp=1..4.", rich_help_panel=PANEL),
    ] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(help="A technique not to use, such as offload.", rich_help_panel=PANEL),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A technique that is off by default.", rich_help_panel=PANEL),
    ] = None,
    software: Annotated[
        list[str] | None,
        typer.Option(help="deepspeed, deepspeed_pipeline, ...", rich_help_panel=PANEL),
    ] = None,
    headroom_gib: Annotated[
        float, typer.Option(help="GPU memory that must stay free.", rich_help_panel=PANEL)
    ] = 0.0,
    min_fits_probability: Annotated[
        float | None,
        typer.Option(
            help="Plans less likely to fit are left out; default 0.8.", rich_help_panel=PANEL
        ),
    ] = None,
    rank_by: Annotated[
        str | None,
        typer.Option(
            help="prediction, or expected: step time over the probability of fitting.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    keep: Annotated[int, typer.Option(help="Plans to keep.", rich_help_panel=PANEL)] = 50,
) -> dict[str, Any]:
    """The `search` of a request, of the options."""
    switches = dict.fromkeys(forbid or [], False) | dict.fromkeys(allow or [], True)
    options: dict[str, Any] = {
        "objective": objective,
        "fixed": assignments(fix or [], "/search/fixed"),
        "limits": limits(limit or []),
        "allow": switches,
        "headroom_gib": headroom_gib,
        "keep": keep,
    }
    given = {
        "deadline_days": deadline_days,
        "min_fits_probability": min_fits_probability,
        "rank_by": rank_by,
    }
    options |= {name: value for name, value in given.items() if value is not None}
    if software:
        options["software"] = software
    return options


_SIGNATURE = inspect.signature(_options)

takes_search = with_options(_SIGNATURE, _options, "options")
"""Decorates a command with an argument `options`: the `search` of a request as plain data."""

takes_search_beside_knobs = with_options(
    _SIGNATURE.replace(parameters=[p for n, p in _SIGNATURE.parameters.items() if n != "software"]),
    _options,
    "options",
)
"""The same for a command that takes the knobs of a plan too, of which the software is one."""
