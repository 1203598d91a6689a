"""meshwright dry-run: the real engine on fake tensors, in child processes."""

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from api.cli.knobs import takes_plan
from api.cli.request import takes_request
from api.completion import completed
from cost_model.plans import Plan
from planner.request import PredictRequest


@takes_request
@takes_plan
def dry_run(
    *,
    request: dict[str, Any],
    plan: Plan | None,
    stage: Annotated[
        list[int] | None, typer.Option(help="Pipeline stages to run; default first and last.")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds.")] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run the exported config in DeepSpeed itself, on fake tensors, and print what it allocates."""
    from trials.dryrun.result import DryRunFailure
    from trials.dryrun.run import dry_run as run

    if not {"global_batch", "global_batch_tokens"} & request["training"].keys():
        # Memory depends on accumulation alone: one micro-batch unless more is asked for.
        request["training"]["global_batch"] = 1
    resolved = PredictRequest.parse(request | {"plan": plan or Plan()}).resolve()
    chosen = completed(plan or Plan(), resolved)
    try:
        result = run(
            resolved.model,
            resolved.cluster,
            resolved.training,
            chosen,
            stages=stage,
            time_limit_s=time_limit,
        )
    except DryRunFailure as failure:
        typer.echo(f"dry run {failure.kind}: {failure}", err=True)
        raise typer.Exit(1) from None
    found = result.to_json()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    _print(found)


def _print(found: dict[str, Any]) -> None:
    console = Console()
    guess = found["predicted"]
    table = Table(title="Allocated GPU memory, GiB", box=box.SIMPLE, title_justify="left")
    for column in ("", "dry run", "predicted"):
        table.add_column(column, justify="left" if not column else "right")

    def row(name: str, seen: float, said: float | None) -> None:
        table.add_row(name, f"{seen:.2f}", "" if said is None else f"{said:.2f}")

    row("peak", found["peak_allocated_gib"], guess["peak_allocated_gib"])
    row("between steps", found["steady_gib"], None)
    for phase, seen in found["phases"].items():
        row(f"phase {phase}", seen, guess["phases"].get(phase))
    for name in sorted({*found["categories"], *guess["categories"]}):
        row(name, found["categories"].get(name, 0.0), guess["categories"].get(name, 0.0))
    console.print(table)
    for note in found["notes"]:
        console.print(note, highlight=False)
    console.print(f"{found['seconds']:.1f} s", highlight=False)
