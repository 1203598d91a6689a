"""`make accuracy DATA=DIR [JSON=FILE]`: the cost model against every measurement of a directory."""

import argparse
import json
from pathlib import Path

import numpy as np
from rich.console import Console

from tests.benchmarks import report, scores
from tests.benchmarks.ask import ask_what_can_be
from tests.benchmarks.rows import Row, Skipped, read_directory


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="accuracy", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory of CSV files")
    parser.add_argument("--json", type=Path, help="write all scores there")
    parser.add_argument("--source", help="only sources whose name contains this")
    parser.add_argument("--worst", type=int, default=0, help="show so many worst rows")
    parser.add_argument("--sweeps", action="store_true", help="show the worst-ranked sweeps")
    parser.add_argument("--skipped", action="store_true", help="show why rows were left out")
    parser.add_argument(
        "--out-of-fold",
        nargs="?",
        const="family",
        choices=("family", "width", "size", "source", "memory"),
        help="predict each model with coefficients fitted without it; or each hidden size, each"
        " source's runs on one number of GPUs, each source; memory: each model's memory and"
        " outcome alone",
    )
    return parser.parse_args()


def main() -> None:
    """Read, ask, score, print."""
    args = _arguments()
    console = Console(width=None if Console().is_terminal else 200)
    read = read_directory(args.data)
    if args.source:
        read = [r for r in read if args.source in r.source]
    rows = [r for r in read if isinstance(r, Row)]
    skipped = [r for r in read if isinstance(r, Skipped)]
    if args.out_of_fold:
        from tests.benchmarks.fitting.held_out import ask_memory_out_of_fold, ask_out_of_fold

        held = str(args.out_of_fold)
        if held == "memory":
            answers = ask_memory_out_of_fold(rows, console)
        else:
            answers = ask_out_of_fold(rows, console, by=lambda row: str(getattr(row, held)))
    else:
        rows, refused, answers = ask_what_can_be(rows)
        skipped += refused
    blocks = scores.all_blocks(rows, skipped, answers)
    report.print_blocks(console, blocks)
    if args.skipped:
        report.print_skipped(console, blocks)
    if args.sweeps:
        report.print_sweeps(console, blocks)
    if args.worst:
        every = np.ones(len(rows), dtype=np.bool_)
        times = scores.time_pairs(rows, answers).only(every)
        memory = scores.memory_pairs(rows, answers).only(every)
        report.print_worst(console, rows, times, answers.parts, args.worst, "step time")
        report.print_worst(console, rows, memory, answers.categories, args.worst, "memory")
        report.print_suspects(console, answers, times)
    if args.json:
        args.json.write_text(json.dumps(blocks, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
