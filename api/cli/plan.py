"""meshwright plan: search and print the ranking; meshwright why-not: against another plan."""

import json
from typing import Annotated, Any

import typer

from api.cli.calibration import CalibrationFile, with_file
from api.cli.explain import print_why_not
from api.cli.knobs import takes_plan
from api.cli.request import assignments, takes_request
from api.cli.result import print_result
from api.cli.search import PANEL, searched, takes_search, takes_search_beside_knobs
from api.cli.table import console
from api.completion import with_own_plan
from api.schemas.explain import Explained
from api.wording import method_of, summary_of
from cost_model.plans import Plan
from planner.errors import Problem, RequestError
from planner.explain import why_not as explain_why_not
from planner.explain.why_not import partial_plan
from planner.request import PlanRequest, Resolved
from planner.search.longest import at_length


def _parameters(count: int) -> str:
    return f"{count / 1e9:.2f} B" if count >= 1e8 else f"{count / 1e6:.1f} M"


def title_of(resolved: Resolved) -> str:
    """What a request resolved to, in a line."""
    said = summary_of(resolved)
    model, cluster, training = said["model"], said["cluster"], said["training"]
    nodes = f"{cluster['nodes']} node{'s' if cluster['nodes'] > 1 else ''}"
    return (
        f"{model['name']} ({_parameters(model['parameters'])} parameters) on "
        f"{cluster['gpus']} x {cluster['gpu']} ({nodes}), "
        f"{training['seq_len']} tokens x {training['global_batch']} sequences a step"
        + ("" if training.get("lora") is None else f", {method_of(training)}")
    )


@takes_request
@takes_search
def plan(
    *,
    request: dict[str, Any],
    options: dict[str, Any],
    around: Annotated[
        list[str] | None,
        typer.Option(
            help="A knob of your own plan, such as zero_stage=3: it is scored, and the cheapest "
            "changes that improve it are listed.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if",
            help="Also for one more node, half the bandwidth, twice the sequence.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    calibration: CalibrationFile = None,
    top: Annotated[int, typer.Option(help="Plans to print.", rich_help_panel=PANEL)] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Rank the plans that train a model on a cluster."""
    options |= {"what_if": what_if}
    if around:
        options["around"] = partial_plan_of(around)
    resolved = with_file(PlanRequest.parse(request | {"search": options}).resolve(), calibration)
    resolved = with_own_plan(resolved)
    found = searched(resolved, as_json)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
        return
    print_result(console(), found, title_of(resolved), top)


def partial_plan_of(pairs: list[str]) -> dict[str, Any]:
    """`name=value` pairs as columns of a plan."""
    try:
        return partial_plan(assignments(pairs, "--around"))
    except RequestError as error:
        raise RequestError(
            Problem(p.pointer.replace("/explain/", "--around "), p.given, p.wanted)
            for p in error.problems
        ) from error


@takes_request
@takes_search_beside_knobs
@takes_plan
def why_not(
    *,
    request: dict[str, Any],
    options: dict[str, Any],
    plan: Plan | None,
    calibration: CalibrationFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say why a plan with these knobs is not the best: a rule, bytes missed, seconds lost."""
    if plan is None:
        wanted = "give at least one knob, such as --tp 8"
        raise RequestError([Problem("plan", "no knob is given", wanted)])
    resolved = with_file(PlanRequest.parse(request | {"search": options}).resolve(), calibration)
    found = searched(resolved, as_json)
    if found.seq_len is not None:
        resolved = at_length(resolved, found.seq_len)
    asked = {name: getattr(plan, name) for name in plan.model_fields_set}
    best = found.candidates[0] if found.candidates else None
    answer = Explained.of(explain_why_not(resolved, asked, best))
    if as_json:
        typer.echo(json.dumps(answer.model_dump(mode="json"), indent=2))
        return
    print_why_not(console(), answer, best, title_of(resolved))
