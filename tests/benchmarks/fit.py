"""`make fit DATA=DIR`: refits the coefficients and prints the cross-validated error by family.

Nothing is written unless --write is given: then time.json and memory.json get the refitted figures
and the spreads that make the stated 90 % intervals cover 90 % of held-out rows.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from cost_model import calibration
from cost_model.calibration import Coefficients
from cost_model.plans import Floats
from tests.benchmarks import scores
from tests.benchmarks.ask import Answers
from tests.benchmarks.fitting.folds import solved
from tests.benchmarks.fitting.held_out import Solution, ask_out_of_fold
from tests.benchmarks.fitting.memory_figures import FIGURES
from tests.benchmarks.fitting.memory_fit import Fit, PeakMemory, memory_solved
from tests.benchmarks.fitting.parameters import document
from tests.benchmarks.fitting.spread import (
    Shares,
    coverage,
    memory_spread,
    stated_sigmas,
    time_spreads,
)
from tests.benchmarks.rows import Row, read_directory

SHIPPED = Path(calibration.__file__).parent


def main() -> None:
    """Fit, cross-validate, print, and write where asked."""
    parser = argparse.ArgumentParser(prog="fit", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory of CSV files")
    parser.add_argument("--iterations", type=int, default=6, help="at most so many steps")
    parser.add_argument(
        "--write",
        choices=("all", "spreads"),
        help="ship the refitted figures and spreads, or the spreads alone",
    )
    parser.add_argument("--json", type=Path, help="write the held-out scores there")
    args = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 150)
    rows = [r for r in read_directory(args.data) if isinstance(r, Row)]
    base = Coefficients.default()
    solution = solved(rows, base, args.iterations)
    _print_figures(console, solution)
    fitted = solution[0].coefficients(solution[1])
    peaks = memory_solved(rows)
    _print_memory_figures(console, *peaks)
    answers = ask_out_of_fold(rows, solution=solution, memory=peaks)
    times = scores.time_pairs(rows, answers)
    memory = scores.memory_pairs(rows, answers)
    spreads, sigma = _spreads(rows, answers, times, memory)
    console.print(_families(rows, times, memory, spreads, sigma))
    _print_spreads(console, rows, answers, times, memory, spreads, sigma)
    if args.json:
        blocks = scores.all_blocks(rows, [], answers)
        args.json.write_text(json.dumps(blocks, indent=1) + "\n", encoding="utf-8")
    if args.write:
        _write(base if args.write == "spreads" else fitted, spreads, sigma)
        console.print(f"written to {SHIPPED}")


def _print_figures(console: Console, solution: Solution) -> None:
    problem, logs, _, jacobian = solution
    table = Table(title="Fitted figures")
    for column in ("figure", "expected", "shipped", "fitted", "rows that see it"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for j, parameter in enumerate(problem.parameters):
        seen = int((np.abs(jacobian[:, j]) > 1e-3).sum())
        if seen:
            table.add_row(
                parameter.name,
                f"{parameter.expected:.3g}",
                f"{math.exp(problem.start[j]):.3g}",
                f"{math.exp(logs[j]):.3g}",
                str(seen),
            )
    console.print(table)


def _print_memory_figures(console: Console, problem: PeakMemory, fit: Fit) -> None:
    table = Table(title="Fitted figures of memory; all others are read in the software's source")
    for column in ("figure", "expected", "shipped", "fitted", "rows that see it"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for j, figure in enumerate(FIGURES):
        table.add_row(
            figure.name,
            f"{figure.expected:.3g}",
            f"{math.exp(problem.start[j]):.3g}",
            f"{math.exp(fit.logs[j]):.3g}",
            str(int((np.abs(fit.jacobian[:, j]) > 1e-3).sum())),
        )
    console.print(table)


def _ratios(pairs: scores.Pairs) -> Floats:
    return np.log(pairs.predicted / pairs.measured)


def _spreads(
    rows: Sequence[Row], answers: Answers, times: scores.Pairs, memory: scores.Pairs
) -> tuple[dict[str, dict[str, float]], float]:
    timed = [rows[i] for i in times.rows]
    large = scores.realistic(rows)
    return (
        time_spreads(timed, _ratios(times), Shares.of(answers).at(times.rows)),
        memory_spread(_ratios(memory.only(large))),
    )


def _families(
    rows: Sequence[Row],
    times: scores.Pairs,
    memory: scores.Pairs,
    spreads: dict[str, dict[str, float]],
    sigma: float,
) -> Table:
    table = Table(title="Held out: each family from a fit without it (errors in per cent)")
    table.add_column("family")
    for column in ("time n", "mean", "median", "bias", "mem n", "mean", "median", "bias"):
        table.add_column(column, justify="right")
    of_time = np.array([rows[i].family for i in times.rows])
    of_memory = np.array([rows[i].family for i in memory.rows])
    for family in sorted(set(of_time) | set(of_memory)):
        cells = [family]
        for pairs, of in ((times, of_time), (memory, of_memory)):
            found = scores.error_block(_pick(pairs, of == family))
            cells += [str(found["n"] or "")] + [
                "" if found[k] is None else f"{100 * float(found[k] or 0):.1f}"
                for k in ("mape", "median_ape", "bias")
            ]
        table.add_row(*cells)
    return table


def _pick(pairs: scores.Pairs, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> scores.Pairs:
    return replace(
        pairs,
        rows=pairs.rows[mask],
        measured=pairs.measured[mask],
        predicted=pairs.predicted[mask],
        low=pairs.low[mask],
        high=pairs.high[mask],
    )


def _print_spreads(
    console: Console,
    rows: Sequence[Row],
    answers: Answers,
    times: scores.Pairs,
    memory: scores.Pairs,
    spreads: dict[str, dict[str, float]],
    sigma: float,
) -> None:
    """The spreads, and what share of held-out rows their 90 % intervals cover."""
    ratios, timed = _ratios(times), [rows[i] for i in times.rows]
    sigmas = stated_sigmas(timed, Shares.of(answers).at(times.rows), spreads)
    inside = np.abs(ratios) <= 1.6449 * sigmas
    console.print("step-time spreads:", json.dumps(spreads))
    console.print(
        f"90 % intervals cover {100 * inside.mean():.1f} % of held-out step times and"
        f" {100 * coverage(_ratios(memory), sigma):.1f} % of peak memories (sigma {sigma:.3f})"
    )


def _write(fitted: Coefficients, spreads: dict[str, dict[str, float]], sigma: float) -> None:
    doc = document(fitted)
    for group in ("gpus", "architectures", "links", "networks", "software"):
        for figures in doc[group].values():
            for name, figure in figures.items():
                figures[name] = float(f"{figure:.4g}")
    doc["spread"] = doc["spread"] | spreads
    path = SHIPPED / "time.json"
    path.write_text(json.dumps(doc, indent=2) + "\n", encoding="utf-8")
    path = SHIPPED / "memory.json"
    memory = json.loads(path.read_text("utf-8"))
    memory["spread"]["sigma"] = round(sigma, 3)
    path.write_text(json.dumps(memory, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
