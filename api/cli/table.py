"""Candidates as a table."""

from rich import box
from rich.console import Console
from rich.table import Table

from api.wording import GIB, summary
from planner.candidate import Candidate

PIPE_WIDTH = 140
"""Columns where the output is no terminal: wide enough that a pipe gets one line a plan."""


def console() -> Console:
    """Standard output, as wide as the terminal."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=PIPE_WIDTH)


def duration(seconds: float) -> str:
    """A duration with a unit that suits it."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def precise(seconds: float) -> str:
    """A measured duration."""
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else duration(seconds)


def ranking(candidates: tuple[Candidate, ...], title: str) -> Table:
    """One line a candidate."""
    run = any(c.run is not None for c in candidates)
    table = Table(
        title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("#", no_wrap=True)
    table.add_column("plan", min_width=18, overflow="fold")
    for name in ("GPUs", "step", "tokens/s", "MFU", "GPU GiB", "host GiB", "fits"):
        table.add_column(name, justify="right", no_wrap=True)
    if run:
        table.add_column("days", justify="right")
        table.add_column("USD", justify="right")
    for c in candidates:
        cells = [
            str(c.rank or "-"),
            summary(c.plan),
            str(c.gpus),
            duration(c.step.seconds),
            f"{c.step.tokens_per_s:,.0f}",
            f"{100 * c.step.mfu:.1f}%",
            f"{c.memory.total_bytes / GIB:.1f}/{c.memory.capacity_bytes / GIB:.1f}",
            f"{c.memory.host_bytes / GIB:.0f}",
            f"{100 * c.fits_probability:.0f}%",
        ]
        if run:
            cells.append("" if c.run is None else f"{c.run.days:,.2f}")
            cost = None if c.run is None else c.run.usd
            cells.append("?" if cost is None else f"{cost:,.0f}")
        table.add_row(*cells)
    return table
