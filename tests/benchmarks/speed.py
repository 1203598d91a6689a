"""`make speed [JSON=FILE]`: plans per second of the full prediction, and whole searches, timed."""

import argparse
import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from cost_model.plans import BLOCK, PlanTable
from cost_model.predict import predict
from planner.request import PlanRequest, Resolved
from planner.rules import World
from planner.search import search
from planner.space import enumerate_plans

TARGET_SECONDS = {8: 0.05, 64: 0.5, 512: 0.5, 4096: 2.0}
"""Seconds in which the complete space of llama-3.1-70b must be ranked, by GPUs."""
TARGET_PLANS_PER_S = 1_000_000
TARGET_RSS_MIB = 1024

RUNS, SPENT = 3, 1.5
"""Runs of each figure, and CPU seconds of all of them: at least."""

T = TypeVar("T")


def request(gpus: int) -> Resolved:
    """Llama-3.1-70B on that many A100-80GB in nodes of eight, nothing limited."""
    return PlanRequest.model_validate(
        {
            "model": {"preset": "llama-3.1-70b"},
            "cluster": {"preset": "dgx-a100-80g", "nodes": max(1, gpus // 8)},
            "training": {"seq_len": 8192, "global_batch": max(64, gpus)},
        }
    ).resolve()


@dataclass(frozen=True)
class Timing:
    """The shortest of several runs: what the code costs without its neighbours."""

    cpu: float
    """Seconds of this process on a processor: what others run does not count, but for what it takes
    of the caches."""
    wall: float


def best_of(prepare: Callable[[], T], run: Callable[[T], object]) -> Timing:
    """Runs at least RUNS times, and until SPENT seconds are spent.

    prepare: makes what a run works on, anew for each, so that no run finds what another has kept.
    """
    cpu, wall = [], []
    while len(cpu) < RUNS or sum(cpu) < SPENT:
        made = prepare()
        began, start = time.perf_counter(), time.process_time()
        run(made)
        cpu.append(time.process_time() - start)
        wall.append(time.perf_counter() - began)
    return Timing(min(cpu), min(wall))


def predictions(gpus: int = 512) -> tuple[Timing, int]:
    """The full prediction of the legal space of that many GPUs, and how many plans it has."""
    table = _legal(request(gpus))

    def all_parts(world: World) -> None:
        for start in range(0, len(table), BLOCK):
            part = table.take(slice(start, start + BLOCK))
            predict(world.model, world.cluster, world.training, part)

    return best_of(lambda: request(gpus).world, all_parts), len(table)


def _legal(resolved: Resolved) -> PlanTable:
    """At most half a million plans of the legal space, without the bound that memory gives."""
    tables = [block.table for block in enumerate_plans(resolved.world, resolved.search)]
    largest = max(tables, key=len)
    step = max(1, len(largest) // 500_000)
    return largest.take(np.arange(0, len(largest), step))


def main() -> None:
    """Time, print, and write the JSON."""
    parser = argparse.ArgumentParser(prog="speed", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    search(request(8))  # imports, data files and first touches are not the search's
    table = Table(title="Search of llama-3.1-70b's complete space, one core")
    for column in ("GPUs", "CPU s", "wall s", "target", "enumerated", "legal", "fitting"):
        table.add_column(column, justify="right")
    seconds: dict[str, float] = {}
    for gpus, target in TARGET_SECONDS.items():
        spent = best_of(lambda g=gpus: request(g), search)  # type: ignore[misc]
        seconds[str(gpus)] = spent.cpu
        certificate = search(request(gpus)).certificate
        table.add_row(
            str(gpus),
            f"{spent.cpu:.3f}",
            f"{spent.wall:.3f}",
            f"{target:g}",
            f"{certificate.enumerated:,}",
            f"{certificate.legal:,}",
            f"{certificate.fitting:,}",
        )
    spent, plans = predictions()
    rate = plans / spent.cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console = Console()
    console.print(table)
    console.print(
        f"full prediction: {rate:,.0f} plans a CPU second ({plans / spent.wall:,.0f} a second of "
        f"wall time) over {plans:,} plans (target {TARGET_PLANS_PER_S:,}); peak memory "
        f"{peak:.0f} MiB (target {TARGET_RSS_MIB})"
    )
    if args.json:
        figures = {"plans_per_s": rate, "search_s": seconds, "peak_rss_mib": peak}
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
