"""meshwright dry-run and trial: the real engine. Torch is loaded in child processes only."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich import box
from rich.console import Console
from rich.table import Table

from api.cli.interrupts import tidy_on_terminate
from api.cli.knobs import takes_plan
from api.cli.request import takes_request
from api.cli.table import precise
from api.completion import completed
from api.wording import GIB, summary
from cost_model.plans import Plan
from planner.candidate import Candidate
from planner.errors import RequestError
from planner.request import PredictRequest
from planner.request.pointers import problems_of
from planner.search import predict_one
from trials.result import TrialResult


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


@takes_request
@takes_plan
def trial(
    *,
    request: dict[str, Any],
    plan: Plan | None,
    name: Annotated[str, typer.Option(help="Id of the trial; a second run of it is not started.")],
    root: Annotated[Path, typer.Option(help="Folder of all trials.")] = Path("trials-data"),
    steps: Annotated[int, typer.Option(help="Measured steps.")] = 5,
    warmup_steps: Annotated[int, typer.Option(help="Before them.")] = 2,
    cold: Annotated[bool, typer.Option(help="Fresh interpreters; needed for GPUs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train the plan for a few steps on this machine and print what was measured."""
    from planner.export import ds_config
    from trials.executors.local import LocalExecutor
    from trials.executors.protocol import State
    from trials.preflight import Refused
    from trials.trial_file import TrialFile

    resolved = PredictRequest.parse(request | {"plan": plan or Plan()}).resolve()
    chosen = completed(plan or Plan(), resolved)
    config = ds_config(resolved.model, resolved.cluster, resolved.training, chosen)
    executor = LocalExecutor(root.resolve(), ranks=chosen.world_size, warm=not cold)
    try:
        made = TrialFile(
            trial_id=name,
            model=resolved.model,
            training=resolved.training,
            plan=chosen,
            ds_config=config,
            steps=steps,
            warmup_steps=warmup_steps,
            device="auto" if cold else "cpu",
        )
    except ValidationError as error:
        raise RequestError(problems_of(error.errors(), TrialFile)) from error
    try:
        executor.submit(made)
    except Refused as refused:
        typer.echo(f"refused: {refused}", err=True)
        raise typer.Exit(1) from None
    try:
        with tidy_on_terminate():
            while executor.state(name) is not State.ENDED:
                time.sleep(0.05)
    except (KeyboardInterrupt, SystemExit):
        executor.cancel(name)
        raise
    finally:
        executor.close()
    result = executor.result(name)
    if result is None:
        raise typer.Exit(1)
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        _print_trial(result, predict_one(resolved, chosen).candidate)
    if result.outcome.kind != "ok":
        raise typer.Exit(1)


def _print_trial(result: TrialResult, predicted: Candidate) -> None:
    """How it ended, and what was measured against what was predicted."""
    plan, outcome = predicted.plan, result.outcome
    typer.echo(f"{result.trial_id}: {summary(plan)} on {plan.world_size} ranks: {outcome.kind}")
    if outcome.message:
        typer.echo(outcome.message)
    for finding in result.findings:
        typer.echo(f"finding: {finding.name}: {finding.message}")
    seconds, losses = result.step_seconds, result.losses
    if seconds is None:
        return
    last = [report.steps[-1] for report in result.ranks]
    parts = {n: max(getattr(s, n) for s in last) for n in ("forward", "backward", "step")}
    told = ", ".join(f"{name} {precise(value)}" for name, value in parts.items())
    typer.echo(f"step {precise(seconds)}, predicted {precise(predicted.step.seconds)} ({told})")
    if result.performance is not None:
        typer.echo(f"{result.performance.tokens_per_s:,.0f} tokens/s")
    if losses:
        typer.echo(f"loss {losses[0]:.4f} to {losses[-1]:.4f} over {len(losses)} steps")
    if result.allocated_bytes is not None:
        allocated = predicted.memory.allocated_bytes / GIB
        peak = result.allocated_bytes / GIB
        typer.echo(f"allocated peak {peak:.2f} GiB, predicted {allocated:.2f} GiB")


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
