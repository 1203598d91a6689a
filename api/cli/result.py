"""The result of a search, printed."""

from rich.console import Console

from api.cli.explain import print_around, print_baseline, print_what_if
from api.cli.table import ranking
from planner.search import SearchResult


def print_result(out: Console, found: SearchResult, title: str, top: int) -> None:
    """The ranking, or what is nearest where nothing fits; and how it was found."""
    if found.candidates:
        out.print(ranking(found.candidates[:top], title))
    nothing = found.nothing_fits
    if nothing is not None:
        out.print(f"[bold]{title}: no plan fits.[/bold]")
        if nothing.nearest:
            out.print(ranking(nothing.nearest, "Nearest"))
            out.print(nothing.why, highlight=False, markup=False, soft_wrap=True)
        for change in nothing.changes:
            out.print(f"- {change.what}", highlight=False)
    if found.seq_len is not None:
        out.print(f"The longest sequence that fits: {found.seq_len} tokens.", highlight=False)
    if found.baseline is not None and found.candidates:
        print_baseline(out, found.baseline, found.candidates[0])
    if found.around is not None:
        print_around(out, found.around)
    print_what_if(out, found.what_if)
    for note in found.notes:
        out.print(note, highlight=False, markup=False, soft_wrap=True)
    seen = found.certificate
    out.print(
        f"{seen.enumerated:,} combinations, {seen.legal:,} legal plans evaluated "
        f"({seen.bounded:,} layouts ruled out by memory), {seen.fitting:,} fit; "
        f"{seen.seconds:.2f} s",
        style="dim",
        highlight=False,
    )
