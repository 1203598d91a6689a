"""`python -m tests.benchmarks.entropy`: the router entropy's weight, searched and then checked.

The study searches on some seeds; the chosen weight, none, ten times it, and a grid are then run on
three others. Prints the tables of docs/router_entropy.md and draws its plot.
"""

import argparse
import json
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from cost_model.catalogue import cluster, model
from cost_model.plans import Plan
from cost_model.specs import TrainingSpec
from trials.entropy import EntropyStudy, Point, Proxy, SearchSettings, StepCost, search
from trials.entropy.study import EntropyTrial, run_point

mpl.use("agg")
from matplotlib import pyplot as plt

PLOT = Path(__file__).parents[2] / "docs" / "plots" / "router_entropy.png"
MODEL, CLUSTER, NODES = "mixtral-8x7b", "dgx-a100-80g", 8
PLAN = Plan(nodes=NODES, dp=64, ep=8, zero_stage=2, grad_accum=8, recompute="full")
TRAINING = TrainingSpec(seq_len=4096, global_batch=512)
SEARCH_SEEDS = (1, 2)
CHECK_SEEDS = (21, 22, 23)
GRID = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

Runs = dict[str, list[EntropyTrial]]
"""By "weight at capacity": a trial for each of the seeds that check."""


def of_the_plan() -> StepCost:
    """Step times of the model that is meant."""
    return StepCost.of_plan(model(MODEL), cluster(CLUSTER, NODES), TRAINING, PLAN)


def check(study: EntropyStudy, cost: StepCost, proxy: Proxy, capacities: set[float]) -> Runs:
    """The grid, the chosen weight and ten times it, on seeds that the study never saw."""
    runs: Runs = {}
    best = study.best.point
    points = [(best.capacity_factor, factor * best.weight) for factor in (0, 1, 10)]
    points += [(capacity, weight) for capacity in sorted(capacities) for weight in GRID]
    for capacity, weight in dict.fromkeys(points):
        point = Point(weight=weight, capacity_factor=capacity, over=study.settings.over)
        runs[name(weight, capacity)] = [
            run_point(
                proxy.train,
                cost,
                point,
                study.settings.model_copy(update={"seeds": (seed,)}),
                target=study.target_loss,
            )
            for seed in CHECK_SEEDS
        ]
        print(row(runs[name(weight, capacity)]), flush=True)
    return runs


def name(weight: float, capacity: float) -> str:
    """The key of a point."""
    return f"{weight:.6g} at {capacity:g}"


def mean(trials: list[EntropyTrial], field: str) -> float:
    """Over seeds; not a number where one was pruned."""
    return float(np.mean([np.nan if (x := getattr(t, field)) is None else x for t in trials]))


def row(trials: list[EntropyTrial]) -> str:
    """A line of the table."""
    point = trials[0].point
    times = " ".join(f"{t.seconds_to_target or 0:.0f}" for t in trials)
    capacity = "dropless" if point.capacity_factor == 0 else f"{point.capacity_factor:g}"
    return (
        f"| {capacity} | {point.weight:.3g} | {mean(trials, 'seconds_to_target'):.0f} | {times} "
        f"| {mean(trials, 'loss'):.3f} | {mean(trials, 'max_over_mean'):.2f} "
        f"| {100 * mean(trials, 'dropped'):.1f} | {mean(trials, 'specialisation'):.2f} "
        f"| {mean(trials, 'step_seconds'):.1f} |"
    )


def verdict(study: EntropyStudy, runs: Runs) -> tuple[float, float]:
    """Time of the chosen weight over that of none, and of ten times it, at its capacity."""
    point = study.best.point
    times = {
        factor: mean(runs[name(factor * point.weight, point.capacity_factor)], "seconds_to_target")
        for factor in (0, 1, 10)
    }
    return times[1] / times[0], times[1] / times[10]


def draw(study: EntropyStudy, runs: Runs, path: Path) -> None:
    """Time to the target loss, and what the weight does to load and specialisation."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4))
    for capacity in sorted({t[0].point.capacity_factor for t in runs.values()}):
        mine = [t for t in runs.values() if t[0].point.capacity_factor == capacity]
        mine.sort(key=lambda t: t[0].point.weight)
        x = [t[0].point.weight for t in mine]
        label = "dropless" if capacity == 0 else f"capacity {capacity:g}"
        for axis, field in zip(
            axes, ("seconds_to_target", "max_over_mean", "specialisation"), strict=True
        ):
            values = np.array([[getattr(one, field) for one in t] for t in mine])
            line = axis.plot(x, values.mean(1), marker="o", markersize=3, label=label)[0]
            axis.fill_between(x, values.min(1), values.max(1), alpha=0.15, color=line.get_color())
    titles = ("predicted seconds to the loss", "busiest expert over mean", "specialisation")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_xscale("symlog", linthresh=0.01)
        axis.axvline(study.best.point.weight, color="0.5", linewidth=0.8, linestyle="--")
        axis.set(xlabel="weight of the entropy", title=title)
    axes[0].set_yscale("log")
    axes[0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Searches, checks, prints, draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=18)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, default=PLOT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    began, cpu = time.monotonic(), time.process_time()
    cost, proxy = of_the_plan(), Proxy.like(model(MODEL))
    settings = SearchSettings(n_trials=given.trials, steps=given.steps, seeds=SEARCH_SEEDS)
    study = search(proxy.train, cost, settings)
    print(f"target loss {study.target_loss:.3f}; {study.pruned} of {len(study.trials)} pruned")
    for trial in study.trials:
        ended = "pruned" if trial.seconds_to_target is None else "run"
        print(row([trial]), ended, trial.steps, flush=True)
    print("finalists, on further seeds")
    for trial in study.finals:
        print(row([trial]), flush=True)
    print(f"chosen {study.best.point}")
    print(f"study: {time.monotonic() - began:.0f} s, {time.process_time() - cpu:.0f} s of CPU")
    if given.json:
        given.json.write_text(study.model_dump_json(), "utf-8")
    runs = check(study, cost, proxy, {0.0, study.best.point.capacity_factor})
    over_none, over_ten = verdict(study, runs)
    print(
        f"chosen {study.best.point}: {over_none:.3f} of the time of none, {over_ten:.3f} of ten "
        f"times it; {time.monotonic() - began:.0f} s, {time.process_time() - cpu:.0f} s of CPU"
    )
    draw(study, runs, given.plot)
    if given.json:
        whole = {
            "study": study.model_dump(),
            "runs": {key: [t.model_dump() for t in trials] for key, trials in runs.items()},
            "over_none": over_none,
            "over_ten": over_ten,
        }
        given.json.write_text(json.dumps(whole), "utf-8")


if __name__ == "__main__":
    main()
