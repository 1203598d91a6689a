"""meshwright export: the config of the best plan, or of a plan given by its knobs."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.knobs import takes_plan
from api.cli.plan import searched
from api.cli.request import takes_request
from api.completion import completed
from cost_model.plans import Plan
from planner.errors import Problem, RequestError
from planner.export import ds_config
from planner.request import PlanRequest, PredictRequest


def _ranked(request: dict[str, Any], rank: int) -> Plan:
    found = searched(PlanRequest.parse(request | {"search": {"keep": rank}}), quiet=False)
    if len(found.candidates) < rank:
        given = f"rank {rank}, and {len(found.candidates)} plans fit"
        raise RequestError([Problem("--rank", given, "meshwright plan says what would fit")])
    return found.candidates[rank - 1].plan


@takes_request
@takes_plan
def export(
    *,
    request: dict[str, Any],
    plan: Plan | None,
    rank: Annotated[
        int, typer.Option(min=1, help="Which plan of the ranking, where no knob is given.")
    ] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; standard output if none.")
    ] = None,
) -> None:
    """Write the DeepSpeed config of a plan."""
    resolved = PredictRequest.parse(request | {"plan": plan or Plan()}).resolve()
    chosen = _ranked(request, rank) if plan is None else completed(plan, resolved)
    config = ds_config(resolved.model, resolved.cluster, resolved.training, chosen)
    text = json.dumps(config, indent=2) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, "utf-8")
