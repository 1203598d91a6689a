"""What a search says beside its ranking, in lines and small tables."""

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from api.cli.table import duration, ranking
from api.schemas.explain import Explained
from api.wording import GIB, summary
from planner.candidate import Candidate
from planner.explain import Around, WhatIf
from planner.explain.why import WORDS


def _lines(out: Console, lines: Iterable[str]) -> None:
    for line in lines:
        out.print(f"- {line}", highlight=False, markup=False, soft_wrap=True)


def print_around(out: Console, around: Around) -> None:
    """The user's own plan, the rules that it breaks, and what would improve it."""
    out.print(ranking((around.candidate,), "Your plan"))
    _lines(out, (f"it breaks {v.rule}: {v.message}" for v in around.violations))
    if around.improvements:
        out.print("What would improve it, the cheapest change first:")
        _lines(out, (better.sentence for better in around.improvements))
    elif not around.violations:
        out.print("No plan near it is better.")


def print_baseline(out: Console, baseline: Candidate, best: Candidate) -> None:
    """How much the search gains over the rule of thumb."""
    gain = baseline.step.seconds / best.step.seconds - 1
    out.print(
        f"Rule of thumb (TP until it fits, then PP, then DP): {summary(baseline.plan)}, "
        f"{duration(baseline.step.seconds)} a step; the best plan is {100 * gain:.1f} % faster.",
        highlight=False,
        soft_wrap=True,
    )


def print_what_if(out: Console, worlds: Iterable[WhatIf]) -> None:
    """How the answer changes with the world."""
    _lines(out, (one.sentence for one in worlds))


def print_why_not(out: Console, answer: Explained, best: Candidate | None, title: str) -> None:
    """The verdict, in sentences and by term."""
    knobs = ", ".join(f"{name}={value}" for name, value in answer.asked.items())
    out.print(f"{title}\nWhy not {knobs}: {answer.verdict}.", highlight=False, soft_wrap=True)
    _lines(out, answer.sentences)
    shown = tuple(c for c in (best, answer.candidate) if c is not None)
    if shown and answer.verdict != "is the best":
        out.print(ranking(shown, "The best plan, and the best or nearest of that kind"))
    if answer.missing_bytes > 0:
        out.print(f"It misses {answer.missing_bytes / GIB:.1f} GiB.", highlight=False)
    lost = {n: s for n, s in answer.seconds_lost_by_term.items() if s}
    if lost:
        table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
        table.add_column()
        table.add_column(justify="right")
        for name, seconds in sorted(lost.items(), key=lambda item: -item[1]):
            table.add_row(WORDS[name], f"{seconds:+.3g} s")
        table.add_row("in all", f"{answer.seconds_lost:+.3g} s")
        out.print(table)
