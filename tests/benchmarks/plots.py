"""`python -m tests.benchmarks.plots --data DIR`: the plots of docs/accuracy.md, drawn anew."""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

from tests.benchmarks import scores
from tests.benchmarks.ask import Answers, ask
from tests.benchmarks.rows import Row, read_directory
from tests.benchmarks.scores import Pairs

mpl.use("agg")
from matplotlib import pyplot as plt

PLOTS = Path(__file__).parents[2] / "docs" / "plots"
SOURCES = 11
"""Sources that are told apart by colour: the largest; the rest is grey."""


def scatter(rows: list[Row], pairs: Pairs, unit: float, label: str, path: Path) -> None:
    """Predicted against measured, by source, on logarithmic axes."""
    of = np.array([rows[i].source for i in pairs.rows])
    names, counts = np.unique(of, return_counts=True)
    largest = list(names[np.argsort(-counts)][:SOURCES])
    figure, axes = plt.subplots(figsize=(7, 6.5))
    colours = plt.get_cmap("tab20")
    rest = ~np.isin(of, largest)
    x, y = pairs.measured / unit, pairs.predicted / unit
    axes.scatter(x[rest], y[rest], s=7, color="0.7", label="others", rasterized=True)
    for k, name in enumerate(largest):
        mask = of == name
        axes.scatter(x[mask], y[mask], s=7, color=colours(k), label=f"{name} ({mask.sum()})")
    ends = np.array([min(x.min(), y.min()), max(x.max(), y.max())])
    axes.plot(ends, ends, color="0.2", linewidth=0.8)
    for factor in (0.8, 1.25):
        axes.plot(ends, ends * factor, color="0.6", linewidth=0.6, linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel=f"measured {label}", ylabel=f"predicted {label}")
    axes.legend(fontsize=7, markerscale=2, frameon=False)
    _save(figure, path)


def terms(answers: Answers, pairs: Pairs, path: Path) -> None:
    """Mean error of step time where a term is small, middling and large in the step."""
    errors = np.log(pairs.predicted / pairs.measured)
    found = []
    for name, values in answers.parts.items():
        share = values[pairs.rows] / pairs.predicted
        if share.mean() < 0.002:
            continue
        edges = np.quantile(share, [0.5, 0.9])
        bins = [share <= edges[0], (share > edges[0]) & (share <= edges[1]), share > edges[1]]
        found.append((name, [100 * (np.exp(errors[b].mean()) - 1) if b.any() else 0 for b in bins]))
    figure, axes = plt.subplots(figsize=(7, 3.6))
    at = np.arange(len(found))
    labels = ("smaller half", "upper 40 %", "top tenth")
    for k, label in enumerate(labels):
        axes.bar(at + 0.27 * (k - 1), [v[k] for _, v in found], width=0.25, label=label)
    axes.axhline(0, color="0.2", linewidth=0.8)
    axes.set_xticks(at, [name for name, _ in found], rotation=30, ha="right")
    axes.set(ylabel="bias of step time, %", title="Bias by how much of the step a term makes up")
    axes.legend(fontsize=7, frameon=False)
    _save(figure, path)


def _save(figure: plt.Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else {})
    plt.close(figure)


def main() -> None:
    """Draw every plot from the measurements of a directory."""
    parser = argparse.ArgumentParser(prog="plots", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory of CSV files")
    parser.add_argument(
        "--held-out", action="store_true", help="also each model's runs from a fit without it"
    )
    args = parser.parse_args()
    rows = [r for r in read_directory(args.data) if isinstance(r, Row)]
    answers = ask(rows)
    times = scores.time_pairs(rows, answers)
    memory = scores.memory_pairs(rows, answers)
    scatter(rows, times, 1.0, "step time, s", PLOTS / "step_time.png")
    scatter(rows, memory, 2.0**30, "peak memory, GiB", PLOTS / "memory.png")
    terms(answers, times, PLOTS / "terms.png")
    if args.held_out:
        from tests.benchmarks.fitting.held_out import ask_out_of_fold

        held = scores.time_pairs(rows, ask_out_of_fold(rows))
        scatter(rows, held, 1.0, "step time, s (model held out)", PLOTS / "held_out.png")


if __name__ == "__main__":
    main()
