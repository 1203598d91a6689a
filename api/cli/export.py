"""meshwright export: the config of the best plan, or of a plan given by its knobs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.knobs import takes_plan
from api.cli.request import assignments, takes_request
from api.cli.search import searched
from api.completion import completed
from api.exporting import exported
from cost_model.plans import Plan
from planner.errors import Problem, RequestError
from planner.export.registry import FORMATS, Exported, NotExportable
from planner.request import PlanRequest, PredictRequest
from planner.request.pointers import did_you_mean


def _ranked(request: dict[str, Any], rank: int) -> Plan:
    asked = PlanRequest.parse(request | {"search": {"keep": rank}})
    found = searched(asked.resolve(), quiet=False)
    if len(found.candidates) < rank:
        given = f"rank {rank}, and {len(found.candidates)} plans fit"
        raise RequestError([Problem("--rank", given, "meshwright plan says what would fit")])
    return found.candidates[rank - 1].plan


def _write(made: Exported, output: Path | None) -> None:
    if output is None:
        main = made.files[made.main]
        if isinstance(main, bytes):
            wanted = "give --output with the file to write"
            raise RequestError([Problem("--output", f"{made.main} is no text", wanted)])
        typer.echo(main, nl=not main.endswith("\n"))
        return
    whole_folder = output.is_dir() or (len(made.files) > 1 and not output.suffix)
    for name, content in made.files.items() if whole_folder else [("", made.files[made.main])]:
        target = output / name if name else output
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)


@takes_request
@takes_plan
def export(
    *,
    request: dict[str, Any],
    plan: Plan | None,
    format: Annotated[  # noqa: A002 - the option's name
        str, typer.Option("--format", "-f", help=f"{', '.join(FORMATS)}.")
    ] = "ds_config",
    rank: Annotated[
        int, typer.Option(min=1, help="Which plan of the ranking, where no knob is given.")
    ] = 1,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A name or path of the export, such as job_name=llama."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File for the main file, or folder for all; else printed."
        ),
    ] = None,
) -> None:
    """Write the config of a plan: the best one, or the one that the knobs describe."""
    if format not in FORMATS:
        raise RequestError([Problem("--format", f"got {format!r}", did_you_mean(format, FORMATS))])
    resolved = PredictRequest.parse(request | {"plan": plan or Plan()}).resolve()
    chosen = _ranked(request, rank) if plan is None else completed(plan, resolved)
    options = assignments(setting or [], "--set")
    try:
        made = exported(format, resolved, chosen, request, options)
    except NotExportable as error:
        wanted = "another --rank or another --format"
        raise RequestError([Problem("--format", str(error), wanted)]) from error
    _write(made, output)
