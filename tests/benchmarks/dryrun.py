"""Allocated bytes of the engine's dry run against the cost model: one line a plan.

`python -m tests.benchmarks.dryrun` compares with the figures on file (tests/cost_model/memory/
engine.json), in a second. `--run` measures again with the real engine (15 s and more a plan) and
keeps the new figures; `--missing` measures plans of the reach that are not on file.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from cost_model.catalogue import cluster, model
from cost_model.memory import Detail, detail
from cost_model.plans import Plan
from cost_model.specs import ClusterSpec, TrainingSpec
from trials.dryrun.run import dry_run, fullest_rank

FILE = Path(__file__).parents[1] / "cost_model" / "memory" / "engine.json"
GIB = 2**30
CLUSTER = "dgx-a100-80g"
PER_NODE = 8
PHASES = ("init", "forward_backward", "step")


@dataclass(frozen=True)
class Run:
    """One plan in DeepSpeed 0.19.8's engine, on fake tensors. GiB on the fullest stage."""

    model: str
    plan: dict[str, Any]
    """Knobs that are not the default."""
    training: dict[str, Any]
    """The same; sequences of 4,096 in bf16 unless said."""
    peak: float = 0.0
    phase: str = ""
    """Where the engine has its peak."""
    stage: int = 0
    """Pipeline stage that has it."""
    rank: int = 0
    """Which of the stage's ranks was run."""
    init: float = 0.0
    forward_backward: float = 0.0
    step: float = 0.0
    steady: float = 0.0
    """Between two steps."""

    @property
    def question(self) -> tuple[ClusterSpec, TrainingSpec, Plan]:
        """What to ask of either."""
        plan = Plan(**self.plan)
        nodes = -(-plan.world_size // PER_NODE)
        plan = plan.model_copy(update={"nodes": nodes})
        told = {"seq_len": 4096, "global_batch": plan.global_batch, **self.training}
        return cluster(CLUSTER, nodes), TrainingSpec.model_validate(told), plan

    @property
    def label(self) -> str:
        """The plan in words."""
        knobs = [f"{k}={v}" for k, v in {**self.plan, **self.training}.items()]
        if self.rank:
            knobs.append(f"rank={self.rank}")
        return f"{self.model} {' '.join(knobs)}"

    def predicted(self) -> dict[str, float]:
        """GiB by the cost model on the same stage: peak, each phase, steady."""
        found = _detail(self)
        mine = [m for m in found.moments if m.stage == self.stage]
        out = {"peak": max(m.allocated for m in mine) / GIB}
        for phase in PHASES:
            out[phase] = max(m.allocated for m in mine if m.phase == phase) / GIB
        out["steady"] = max(m.allocated for m in mine if m.phase == "save") / GIB
        return out


def _detail(run: Run) -> Detail:
    where, training, plan = run.question
    return detail(model(run.model), where, training, plan)


def on_file() -> list[Run]:
    """The runs whose figures are kept."""
    return [Run(**row) for row in json.loads(FILE.read_text("utf-8"))]


def reach() -> Iterator[Run]:
    """Four models, ZeRO 0 to 3, offload, recompute, one node and eight."""
    for name in ("llama-2-7b", "llama-2-13b", "llama-3.1-8b", "mixtral-8x7b"):
        for dp in (8, 64):
            for recompute in ("none", "full"):
                for zero in range(4):
                    for offload in ({}, {"offload_optimizer": "cpu"}, _BOTH):
                        if (zero == 0 and offload) or (zero < 3 and offload is _BOTH):
                            continue
                        knobs = {"dp": dp, "zero_stage": zero, "recompute": recompute, **offload}
                        yield Run(name, knobs, {}, rank=fullest_rank(Plan.model_validate(knobs)))


_BOTH = {"offload_optimizer": "cpu", "offload_param": "cpu"}


def measure(run: Run) -> Run:
    """The same plan in the engine."""
    where, training, plan = run.question
    seen = dry_run(model(run.model), where, training, plan, rank_in_stage=run.rank).to_json()
    return replace(
        run,
        peak=round(seen["peak_allocated_gib"], 3),
        phase=seen["peak_phase"],
        stage=seen["peak_stage"],
        steady=round(seen["steady_gib"], 3),
        **{phase: round(seen["phases"][phase], 3) for phase in PHASES},
    )


def _key(run: Run) -> str:
    return json.dumps([run.model, run.plan, run.training, run.rank], sort_keys=True)


def _save(runs: list[Run]) -> None:
    rows = ",\n ".join(json.dumps(asdict(run)) for run in sorted(runs, key=_key))
    FILE.write_text(f"[{rows}]\n", "utf-8")


def _measured(console: Console, wanted: list[Run], kept: list[Run]) -> list[Run]:
    by_key = {_key(run): run for run in kept}
    for run in wanted:
        console.print(f"running {run.label}")
        by_key[_key(run)] = measure(run)
        _save(list(by_key.values()))
    return list(by_key.values())


def compare(console: Console, runs: list[Run]) -> list[dict[str, Any]]:
    """Prints a line a plan, and what remains of the error over all; returns the same."""
    table = Table(title="Allocated GiB on the fullest rank: engine / cost model")
    for column in ("plan", "peak", "error", *PHASES, "steady"):
        table.add_column(column, justify="left" if column == "plan" else "right")
    rows = []
    for run in runs:
        said = run.predicted()
        error = said["peak"] / run.peak - 1
        pairs = [f"{getattr(run, p):.2f}/{said[p]:.2f}" for p in (*PHASES, "steady")]
        peak = f"{run.peak:.2f}/{said['peak']:.2f} ({run.phase})"
        table.add_row(run.label, peak, f"{error:+.1%}", *pairs)
        rows.append({**asdict(run), "predicted": said, "error": error})
    console.print(table)
    errors = np.abs([row["error"] for row in rows])
    console.print(
        f"{len(rows)} plans: mean error {errors.mean():.1%}, largest {errors.max():.1%},"
        f" beyond 3 %: {int((errors > 0.03).sum())}"
    )
    return rows


def main() -> None:
    """Measure where asked, compare, write the JSON."""
    parser = argparse.ArgumentParser(prog="dryrun", description=__doc__)
    parser.add_argument("--only", default="", help="plans whose words contain all of these")
    parser.add_argument("--run", action="store_true", help="measure these plans again")
    parser.add_argument("--missing", action="store_true", help="measure what is not on file")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 180)

    def chosen(runs: list[Run]) -> list[Run]:
        return [r for r in runs if all(word in r.label for word in args.only.split())]

    runs = on_file()
    if args.run:
        runs = _measured(console, chosen(runs), runs)
    if args.missing:
        known = {_key(replace(run, rank=0)) for run in runs}
        wanted = [r for r in chosen(list(reach())) if _key(replace(r, rank=0)) not in known]
        runs = _measured(console, wanted, runs)
    rows = compare(console, chosen(runs))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
