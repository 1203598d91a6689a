"""meshwright predict: what the cost model says of one plan."""

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from api.cli.calibration import CalibrationFile, with_file
from api.cli.knobs import takes_plan
from api.cli.request import takes_request
from api.cli.table import console, duration, ranking
from api.completion import completed
from api.wording import GIB
from cost_model.plans import Plan
from planner.candidate import Candidate
from planner.request import PredictRequest
from planner.search import predict_one

EXIT_REFUSED = 1


def _parts(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _breakdown(out: Console, one: Candidate) -> None:
    memory = [(n, f"{b / GIB:.2f} GiB") for n, b in one.memory.categories.items() if b]
    memory.append(("total", f"{one.memory.total_bytes / GIB:.2f} GiB"))
    memory.append(("of", f"{one.memory.capacity_bytes / GIB:.2f} GiB"))
    where = f"stage {one.memory.peak_stage}, {one.memory.peak_phase}"
    out.print(_parts(f"GPU memory at the peak ({where})", memory))
    step = [(n, duration(s)) for n, s in one.step.parts.items() if s]
    step.append(("total", duration(one.step.seconds)))
    out.print(_parts("Step time", step))


@takes_request
@takes_plan
def predict(
    *,
    request: dict[str, Any],
    plan: Plan | None,
    calibration: CalibrationFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict memory and step time of one plan.

    Exit code 1 where it breaks a rule, with the rule on standard error.
    """
    asked = PredictRequest.parse(request | {"plan": plan or Plan()})
    resolved = with_file(asked.resolve(), calibration)
    chosen = completed(plan or Plan(), resolved)
    predicted = predict_one(resolved, chosen)
    if as_json:
        typer.echo(json.dumps(predicted.to_json(), indent=2))
    else:
        out = console()
        out.print(ranking((predicted.candidate,), "Prediction"))
        _breakdown(out, predicted.candidate)
    for violation in predicted.violations:
        typer.echo(f"{violation.kind}: [{violation.rule}] {violation.message}", err=True)
    if predicted.violations:
        raise typer.Exit(EXIT_REFUSED)
