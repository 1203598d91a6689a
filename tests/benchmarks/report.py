"""Tables of the scores for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.benchmarks.ask import Answers
from tests.benchmarks.rows import Row
from tests.benchmarks.scores import Pairs


def _percent(value: float | None, signed: bool = False) -> str:
    if value is None:
        return ""
    return f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"


def _errors(found: Mapping[str, Any]) -> list[str]:
    return [
        str(found["n"] or ""),
        _percent(found["mape"]),
        _percent(found["median_ape"]),
        _percent(found["bias"], signed=True),
    ]


def _line(name: str, found: Mapping[str, Any]) -> list[str]:
    fit = found["fit"]
    judged = sum(fit.values())
    right = (fit["ran_fits"] + fit["oom_oom"]) / judged if judged else None
    taus = [s["tau"] for s in found["sweeps"]]
    regrets = [s["regret"] for s in found["sweeps"]]
    return [
        name,
        f"{found['used']}/{found['rows']}",
        *_errors(found["step_time"]),
        *_errors(found["memory"]),
        _percent(right),
        f"{fit['ran_fits']} {fit['ran_oom']} {fit['oom_fits']} {fit['oom_oom']}" if judged else "",
        f"{len(taus)}" if taus else "",
        f"{np.mean(taus):.2f} {min(taus):.2f}" if taus else "",
        f"{100 * np.mean(regrets):.1f} {100 * max(regrets):.1f}" if taus else "",
        " ".join(_percent(v) or "-" for v in found["coverage90"].values()),
    ]


def print_blocks(console: Console, blocks: Mapping[str, Any]) -> None:
    """One line a source, then all; errors in per cent."""
    table = Table(title="Predicted against measured (errors in per cent)")
    table.add_column("source")
    for column in ("used/rows", "time n", "mean", "median", "bias", "mem n", "mean", "median"):
        table.add_column(column, justify="right")
    for column in ("bias", "fit right", "ran+ ran- oom- oom+", "sweeps", "tau mean min"):
        table.add_column(column, justify="right")
    table.add_column("regret mean max", justify="right")
    table.add_column("in 90 %: time, memory", justify="right")
    for name, found in blocks["sources"].items():
        table.add_row(*_line(name, found))
    table.add_section()
    table.add_row(*_line("all", blocks["all"]))
    console.print(table)
    large = blocks["all"]["memory_realistic"]
    if large["n"]:
        console.print(
            f"peak memory, realistic size (half a billion parameters or more): {large['n']} rows,"
            f" mean error {_percent(large['mape'])}, median {_percent(large['median_ape'])},"
            f" bias {_percent(large['bias'], signed=True)};"
            f" {_percent(large['within15'])} % of them within 15 %,"
            f" {_percent(large['coverage90'])} % within the stated 90 % interval"
        )
    console.print(
        "ran+ ran and was called fitting; ran- ran but was called out of memory; oom- died but was"
        " called fitting (the worst error); oom+ died and was called out of memory.",
        style="dim",
    )


def print_skipped(console: Console, blocks: Mapping[str, Any]) -> None:
    """Why rows were left out, by source."""
    table = Table(title="Rows left out")
    for column in ("source", "rows", "reason"):
        table.add_column(column)
    for name, found in blocks["sources"].items():
        for reason, count in found["skipped"].items():
            table.add_row(name, str(count), reason)
    console.print(table)


def print_sweeps(console: Console, blocks: Mapping[str, Any], limit: int = 25) -> None:
    """The sweeps whose ranking is worst."""
    table = Table(title=f"Sweeps ranked worst (at most {limit})")
    table.add_column("sweep")
    for column in ("runs", "tau", "regret %"):
        table.add_column(column, justify="right")
    for s in sorted(blocks["all"]["sweeps"], key=lambda s: float(s["tau"]))[:limit]:
        table.add_row(s["key"], str(s["n"]), f"{s['tau']:.2f}", f"{100 * s['regret']:.1f}")
    console.print(table)


def print_worst(
    console: Console,
    rows: Sequence[Row],
    pairs: Pairs,
    shares: Mapping[str, np.ndarray[Any, np.dtype[np.float64]]],
    count: int,
    what: str,
) -> None:
    """The rows with the greatest errors, with what the prediction is made of.

    shares: a term's predicted size for every row; the suspects are those that could hide the gap.
    """
    order = np.argsort(-np.abs(np.log(pairs.predicted / pairs.measured)))[:count]
    table = Table(title=f"Worst rows by {what}")
    for column in ("source", "row", "plan", "measured", "predicted", "error %", "largest terms"):
        table.add_column(column, overflow="fold")
    for place in order:
        i = pairs.rows[place]
        row = rows[i]
        plan = row.plan
        layout = (
            f"{row.model_name} {row.cluster.node.gpu.name} x{plan.world_size} tp{plan.tp} "
            f"pp{plan.pp} dp{plan.dp} z{plan.zero_stage} mb{plan.micro_batch} ga{plan.grad_accum} "
            f"{plan.recompute.name.lower()} {row.kernel or row.training.attention} "
            f"s{row.training.seq_len}"
        )
        total = sum(abs(float(values[i])) for values in shares.values()) or 1.0
        largest = sorted(((abs(float(v[i])) / total, k) for k, v in shares.items()), reverse=True)
        table.add_row(
            row.source,
            row.row_id,
            layout,
            _quantity(float(pairs.measured[place]), what),
            _quantity(float(pairs.predicted[place]), what),
            _percent(float(pairs.errors[place]), signed=True),
            ", ".join(f"{k} {100 * share:.0f}" for share, k in largest[:5] if share > 0.01),
        )
    console.print(table)


def _quantity(value: float, what: str) -> str:
    return f"{value:.4g} s" if what == "step time" else f"{value / 2**30:.2f} GiB"


def print_suspects(console: Console, answers: Answers, pairs: Pairs) -> None:
    """Which terms the error of step time goes with, over the rows given.

    The slope of the error on a term's share of the step: where the term is large, so is the
    error. A robust term has no slope.
    """
    if len(pairs.measured) < 8:
        return
    table = Table(title="Error of step time against each term's share of the step")
    for column in ("term", "mean share %", "correlation", "error where largest tenth %"):
        table.add_column(column, justify="right")
    errors = np.log(pairs.predicted / pairs.measured)
    for name, values in answers.parts.items():
        share = values[pairs.rows] / pairs.predicted
        if share.std() < 1e-9 or share.mean() < 1e-4:
            continue
        top = share >= np.quantile(share, 0.9)
        table.add_row(
            name,
            _percent(float(share.mean())),
            f"{np.corrcoef(share, errors)[0, 1]:+.2f}",
            _percent(float(np.exp(errors[top].mean()) - 1), signed=True),
        )
    console.print(table)
