"""`make speed [JSON=FILE]`: plans per second of the full prediction, and whole searches, timed."""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from cost_model.plans import PlanTable
from cost_model.predict import BLOCK, predict
from planner.request import PlanRequest, Resolved
from planner.search import search
from planner.space import enumerate_plans

TARGET_SECONDS = {8: 0.05, 64: 0.5, 512: 0.5, 4096: 2.0}
"""Seconds in which the complete space of llama-3.1-70b must be ranked, by GPUs."""
TARGET_PLANS_PER_S = 1_000_000
TARGET_RSS_MIB = 1024


def request(gpus: int) -> Resolved:
    """Llama-3.1-70B on that many A100-80GB in nodes of eight, nothing limited."""
    return PlanRequest.model_validate(
        {
            "model": {"preset": "llama-3.1-70b"},
            "cluster": {"preset": "dgx-a100-80g", "nodes": max(1, gpus // 8)},
            "training": {"seq_len": 8192, "global_batch": max(64, gpus)},
        }
    ).resolve()


def best_of(times: int, run: Callable[[], object]) -> float:
    """The shortest CPU time of several runs: what the code costs without its neighbours."""
    spent = []
    for _ in range(times):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return min(spent)


def plans_per_second(gpus: int = 512) -> tuple[float, int]:
    """(plans a CPU second of the full prediction, plans) over the legal space of that many GPUs."""
    world = request(gpus).world
    table = _legal(request(gpus))
    parts = [table.take(slice(i, i + BLOCK)) for i in range(0, len(table), BLOCK)]

    def all_parts() -> None:
        for part in parts:
            predict(world.model, world.cluster, world.training, part)

    return len(table) / best_of(3, all_parts), len(table)


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
    for column in ("GPUs", "seconds", "target", "enumerated", "legal", "fitting"):
        table.add_column(column, justify="right")
    seconds: dict[str, float] = {}
    for gpus, target in TARGET_SECONDS.items():
        resolved = request(gpus)
        seconds[str(gpus)] = best_of(3, lambda r=resolved: search(r))  # type: ignore[misc]
        certificate = search(resolved).certificate
        table.add_row(
            str(gpus),
            f"{seconds[str(gpus)]:.3f}",
            f"{target:g}",
            f"{certificate.enumerated:,}",
            f"{certificate.legal:,}",
            f"{certificate.fitting:,}",
        )
    rate, plans = plans_per_second()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console = Console()
    console.print(table)
    console.print(
        f"full prediction: {rate:,.0f} plans a CPU second over {plans:,} plans"
        f" (target {TARGET_PLANS_PER_S:,}); peak memory {peak:.0f} MiB (target {TARGET_RSS_MIB})"
    )
    if args.json:
        figures = {"plans_per_s": rate, "search_s": seconds, "peak_rss_mib": peak}
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
