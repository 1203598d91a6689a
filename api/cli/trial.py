"""meshwright trial: a few real steps on this machine. Torch is loaded in child processes only."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from api.cli.interrupts import tidy_on_terminate
from api.cli.knobs import takes_plan
from api.cli.request import assignments, takes_request
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

PANEL = "Trial"


@takes_request
@takes_plan
def trial(
    *,
    request: dict[str, Any],
    plan: Plan | None,
    name: Annotated[str, typer.Option(help="Id of the trial; a second run of it is not started.")],
    root: Annotated[Path, typer.Option(help="Folder of all trials.")] = Path("trials-data"),
    steps: Annotated[int, typer.Option(help="Measured steps.", rich_help_panel=PANEL)] = 5,
    warmup_steps: Annotated[int, typer.Option(help="Before them.", rich_help_panel=PANEL)] = 2,
    timeout_s: Annotated[
        float, typer.Option(help="Seconds after which it is hung.", rich_help_panel=PANEL)
    ] = 600.0,
    step_limit_s: Annotated[
        float | None,
        typer.Option(help="Stops early where steps are slower.", rich_help_panel=PANEL),
    ] = None,
    data: Annotated[
        str, typer.Option(help="random, or bytes of Python's library.", rich_help_panel=PANEL)
    ] = "random",
    same_batch: Annotated[
        bool, typer.Option("--same-batch", help="One batch for all steps.", rich_help_panel=PANEL)
    ] = False,
    sweep_collectives: Annotated[
        bool,
        typer.Option(
            "--sweep-collectives", help="Measure bandwidth before it trains.", rich_help_panel=PANEL
        ),
    ] = False,
    adapt_micro_batch: Annotated[
        bool,
        typer.Option(
            "--adapt-micro-batch",
            help="Grow and shrink the micro-batch on the way, until it settles.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    adapt: Annotated[
        list[str] | None,
        typer.Option(help="How, such as largest=16 or patience=2.", rich_help_panel=PANEL),
    ] = None,
    router_bonus: Annotated[
        float | None,
        typer.Option(
            help="Weight of an entropy bonus on a mixture's routers; 0 measures their load only.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    router_bonus_over: Annotated[
        str | None,
        typer.Option(help="mean of the batch, or token by token.", rich_help_panel=PANEL),
    ] = None,
    router_bonus_all_ranks: Annotated[
        bool,
        typer.Option(
            "--router-bonus-all-ranks", help="The mean is over all ranks.", rich_help_panel=PANEL
        ),
    ] = False,
    cold: Annotated[bool, typer.Option(help="Fresh interpreters; needed for GPUs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train the plan for a few steps on this machine and print what was measured."""
    from planner.export import ds_config
    from trials.executors.local import LocalExecutor
    from trials.trial_file import TrialFile

    resolved = PredictRequest.parse(request | {"plan": plan or Plan()}).resolve()
    chosen = completed(plan or Plan(), resolved)
    options: dict[str, Any] = {
        "steps": steps,
        "warmup_steps": warmup_steps,
        "timeout_s": timeout_s,
        "step_limit_s": step_limit_s,
        "data": data,
        "same_batch": same_batch,
        "sweep_collectives": sweep_collectives,
    }
    if adapt_micro_batch or adapt:
        options["adapt_micro_batch"] = assignments(adapt or [], "--adapt")
    if router_bonus is not None or router_bonus_over is not None or router_bonus_all_ranks:
        bonus = {"weight": router_bonus, "over": router_bonus_over}
        given = {name: value for name, value in bonus.items() if value is not None}
        options["router_bonus"] = given | {"all_ranks": router_bonus_all_ranks}
    try:
        made = TrialFile(
            trial_id=name,
            model=resolved.model,
            training=resolved.training,
            plan=chosen,
            ds_config=ds_config(resolved.model, resolved.cluster, resolved.training, chosen),
            device="auto" if cold else "cpu",
            **options,
        )
    except ValidationError as error:
        raise RequestError(problems_of(error.errors(), TrialFile)) from error
    executor = LocalExecutor(root.resolve(), ranks=chosen.world_size, warm=not cold)
    result = _run(executor, made)
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        _print(result, predict_one(resolved, chosen).candidate)
    if result.outcome.kind != "ok":
        raise typer.Exit(1)


def _run(executor: Any, made: Any) -> TrialResult:
    """The result of the trial; its processes end with this one."""
    from trials.executors.protocol import State
    from trials.preflight import Refused

    name = made.trial_id
    try:
        with tidy_on_terminate():
            try:
                executor.submit(made)
                while executor.state(name) is not State.ENDED:
                    time.sleep(0.05)
            except (KeyboardInterrupt, SystemExit):
                executor.cancel(name)
                raise
    except Refused as refused:
        typer.echo(f"refused: {refused}", err=True)
        raise typer.Exit(1) from None
    finally:
        executor.close()
    result: TrialResult | None = executor.result(name)
    if result is None:
        raise typer.Exit(1)
    return result


def _print(result: TrialResult, predicted: Candidate) -> None:
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
    _print_adaptation(result)
    _print_load(result)


def _print_adaptation(result: TrialResult) -> None:
    """Each micro-batch that was tried, where the trial adapts it."""
    found = result.ranks[0].adapted
    if found is None:
        return
    for size in found.sizes:
        rate = size.sequences_per_s
        told = "did not fit" if rate is None else f"{rate:.2f} sequences/s a rank"
        name = f"micro-batch {size.micro_batch} x {size.grad_accum}"
        typer.echo(f"{name}: {size.steps} steps, {told}")
    verb = "settled on" if found.settled else "ended at, unsettled,"
    speed = found.won("speed")
    typer.echo(
        f"{verb} micro-batch {found.settled_on}"
        + ("" if speed is None else f": {speed:.2f} times the sequences a second of the first")
    )


def _print_load(result: TrialResult) -> None:
    """How evenly the experts of a mixture were used, where the trial watches its routers."""
    steps = result.ranks[0].steps
    loads = [step.experts for step in (steps[0], steps[-1])]
    if loads[0] is None or loads[1] is None:
        return
    told = [f"{load.max_over_mean:.2f}" for load in loads if load is not None]
    typer.echo(f"busiest expert over the mean: {told[0]} in the first step, {told[1]} in the last")
