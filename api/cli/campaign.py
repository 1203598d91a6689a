"""meshwright campaign: trials of the best plans on this machine, until the best is known."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich import box
from rich.console import Console
from rich.table import Table

from api.calibrated import Learned
from api.cli.calibration import CalibrationFile, keep_in_file, read_calibration
from api.cli.interrupts import tidy_on_terminate
from api.cli.plan import title_of
from api.cli.request import takes_request
from api.cli.search import takes_search
from api.cli.table import console, duration, precise
from api.wording import GIB, summary
from planner.errors import Problem, RequestError
from planner.request import PlanRequest
from planner.request.pointers import problems_of
from trials.campaign import CampaignSettings, CampaignState
from trials.executors.protocol import Executor

PANEL = "Campaign"
TOP = 5
MESSAGE = 160
"""Characters of an engine's message; the trial's result has it whole."""
SILENCE_S = 10.0
"""So long nothing is said of a trial that runs, at first."""
EXIT_FAILED = 1


class _Follower:
    """Prints each trial once it has ended, and now and then how far the one that runs is."""

    def __init__(self, out: Console, executor: Executor) -> None:
        self.out = out
        self.executor = executor
        self.begun: dict[str, float] = {}
        self.told: set[str] = set()
        self.spoke = time.monotonic()

    def say(self, text: str) -> None:
        """One line."""
        self.out.print(text, highlight=False, markup=False, soft_wrap=True)
        self.spoke = time.monotonic()

    def waits(self, state: CampaignState) -> None:
        """How far the pending trials are, where nothing was said for some time."""
        now = time.monotonic()
        longest = max((now - self.begun[t.trial_id] for t in state.pending), default=0.0)
        if now - self.spoke < max(SILENCE_S, longest / 5):
            return
        of = state.settings.warmup_steps + state.settings.steps
        for trial in state.pending:
            since = now - self.begun[trial.trial_id]
            ranks = self.executor.steps(trial.trial_id, 1)
            slowest = min(ranks, key=lambda rank: rank.done, default=None)
            where = (
                "it starts"
                if slowest is None
                else f"{slowest.done} of {of} steps, rank {slowest.rank} in {slowest.phase}"
            )
            self.say(f"    after {duration(since)}: {where}")

    def __call__(self, state: CampaignState) -> None:
        """A new state of the campaign."""
        for number, trial in enumerate(state.trials, 1):
            if trial.pending and trial.trial_id not in self.begun:
                self.begun[trial.trial_id] = time.monotonic()
                if trial.note:  # a smaller run that stands for a plan may take long
                    of = f"{number}/{state.settings.max_trials}"
                    self.say(f"{of} {summary(trial.plan)}: {trial.note}")
            if trial.pending or trial.trial_id in self.told:
                continue
            self.told.add(trial.trial_id)
            seen = trial.measured_seconds
            measured = trial.message[:MESSAGE] if seen is None else f"measured {precise(seen)}"
            self.say(
                f"{len(self.told)}/{state.settings.max_trials} {summary(trial.plan)}: "
                f"{trial.outcome}, predicted {precise(trial.predicted_seconds)}, {measured}; "
                f"the best is known with {100 * state.confidence:.0f} %"
            )


def _print(out: Console, state: CampaignState) -> None:
    """The ranking that was learned, the factors, and why it ended."""
    table = Table(title="Ranking, as learned", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("plan", "step", "90 % between", "GPU GiB", "fits", "is best", "trials"):
        table.add_column(name, justify="left" if name == "plan" else "right", no_wrap=True)
    first = state.ranking[:TOP]
    best_too = [one for one in state.ranking[TOP:] if one.plan == state.best]
    for one in (*first, *best_too):
        table.add_row(
            summary(one.plan),
            precise(one.seconds),
            f"{precise(one.seconds_low)} - {precise(one.seconds_high)}",
            f"{one.total_bytes / GIB:.1f}",
            f"{100 * one.fits_probability:.0f}%",
            f"{100 * one.best_probability:.0f}%",
            str(one.trials),
        )
    out.print(table)
    learned = state.calibration
    moved = {n: f for n, f in learned.factors.items() if abs(f - 1) > 0.005}
    told = ", ".join(f"{name} x {factor:.2f}" for name, factor in moved.items())
    out.print(f"Learned from {learned.n_trials} trials: {told or 'nothing'}.", highlight=False)
    for note in state.notes:
        out.print(f"Note: {note}.", highlight=False, markup=False, soft_wrap=True)
    best = "none" if state.best is None else summary(state.best)
    sure = f"known with {100 * state.confidence:.0f} %"
    out.print(f"Ended: {state.ended}. Best: {best}, {sure}.", highlight=False)


@takes_request
@takes_search
def campaign(
    *,
    request: dict[str, Any],
    options: dict[str, Any],
    name: Annotated[
        str, typer.Option(help="Its id; trials of that id that have run are not run again.")
    ],
    root: Annotated[Path, typer.Option(help="Folder of all trials.")] = Path("trials-data"),
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Ranks of this machine; default its processors.")
    ] = None,
    max_trials: Annotated[int, typer.Option(help="Trials at most.", rich_help_panel=PANEL)] = 8,
    parallel: Annotated[int, typer.Option(help="Trials at a time.", rich_help_panel=PANEL)] = 1,
    confidence: Annotated[
        float, typer.Option(help="Ends when the best is so sure.", rich_help_panel=PANEL)
    ] = 0.9,
    max_seconds: Annotated[
        float | None, typer.Option(help="Time of all trials together.", rich_help_panel=PANEL)
    ] = None,
    steps: Annotated[
        int, typer.Option(help="Measured steps of a trial.", rich_help_panel=PANEL)
    ] = 5,
    warmup_steps: Annotated[int, typer.Option(help="Before them.", rich_help_panel=PANEL)] = 2,
    sampler: Annotated[
        str, typer.Option(help="tpe, nsga2, random.", rich_help_panel=PANEL)
    ] = "tpe",
    seed: Annotated[int, typer.Option(help="Of the sampler.", rich_help_panel=PANEL)] = 0,
    proxies: Annotated[
        bool,
        typer.Option(help="Smaller runs may stand for larger plans.", rich_help_panel=PANEL),
    ] = True,
    calibration: CalibrationFile = None,
    study: Annotated[
        Path | None,
        typer.Option(help="New file for the study, an Optuna journal for optuna-dashboard."),
    ] = None,
    cold: Annotated[bool, typer.Option(help="Fresh interpreters for each trial.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Try the best plans on this machine, learn from each trial, and say which is the best.

    With --calibration the file is read where it is there, and written: later plan, predict and
    why-not commands take it.
    """
    from trials.campaign import export_study, run
    from trials.executors.local import LocalExecutor
    from trials.trial_file import ID_PATTERN

    if not ID_PATTERN.fullmatch(f"{name}-000"):
        wanted = "letters, digits, '.', '_' and '-', at most 96, a letter or digit first"
        raise RequestError([Problem("/name", f"got {name!r}", wanted)])
    settings = _settings(
        max_trials=max_trials,
        parallel=parallel,
        confidence=confidence,
        max_seconds=max_seconds,
        steps=steps,
        warmup_steps=warmup_steps,
        sampler=sampler,
        seed=seed,
        proxies=proxies,
    )
    if study is not None and study.exists():
        raise RequestError([Problem("--study", f"{study} is there already", "give a new file")])
    resolved = PlanRequest.parse(request | {"search": options}).resolve()
    known = None
    if calibration is not None and calibration.exists():
        known = read_calibration(calibration, resolved)
    out = console()
    if not as_json:
        out.print(title_of(resolved), highlight=False)
    executor = LocalExecutor(root.resolve(), ranks=ranks, warm=not cold)
    try:
        follow = None if as_json else _Follower(out, executor)
        with tidy_on_terminate():
            state = run(
                resolved,
                settings,
                name,
                executor,
                known=known,
                on_change=follow,
                on_wait=None if follow is None else follow.waits,
            )
    finally:
        executor.close()
    if calibration is not None and state.calibration.n_trials > state.prior.n_trials:
        before = None if known is None else known.model_dump(mode="json")
        keep_in_file(calibration, Learned(before, state.prior, state.prior, state.calibration))
    if study is not None and state.ranking:
        export_study(resolved, state, study)
    if as_json:
        typer.echo(json.dumps(state.model_dump(mode="json"), indent=2))
    else:
        _print(out, state)
    if state.best is None:
        raise typer.Exit(EXIT_FAILED)


def _settings(**given: Any) -> CampaignSettings:
    try:
        return CampaignSettings(**given)
    except ValidationError as error:
        raise RequestError(problems_of(error.errors(), CampaignSettings)) from error
