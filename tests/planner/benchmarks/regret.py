"""Regret of samplers against the exact optimum, and what the exact search gains over a rule.

`python -m tests.planner.benchmarks.regret` prints the tables of docs/search.md.

Two truths are asked. In the first the analytic model itself is the truth, so the exact ranking is
right by definition. In the second every part of the step (arithmetic, each kind of traffic, the
bubble, offload ...) is off by a factor that the model does not know, drawn once per problem from
a log-normal of sigma 0.2: the situation of a study over real trials, whose warm start comes from
an imperfect model.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from cost_model.plans import Plan, PlanTable
from planner.ranking import evaluate, fitting_plans
from planner.request import Resolved
from planner.search import Measurement, Outcome, optimize, search
from planner.search.optimize import Measure, SamplerName, modelled
from planner.search.result import SOLVED_KNOBS
from tests.planner.requests import resolve

BUDGETS = (1, 10, 30, 60)
SIGMA = 0.2
WARM = 10
"""Plans of the exact ranking that the warm start evaluates first."""

NO_NODES = {"fewer_nodes": False, "nvme": False}
PROBLEMS: dict[str, Callable[[], Resolved]] = {
    "llama-2-7b, 8 x A100-40": lambda: resolve("llama-2-7b", "dgx-a100-40g", allow=NO_NODES),
    "llama-2-13b, 8 x A100-80": lambda: resolve("llama-2-13b", allow=NO_NODES, global_batch=256),
    "llama-2-13b, 16 x A100-80": lambda: resolve("llama-2-13b", nodes=2, allow=NO_NODES),
    "llama-2-70b, 32 x A100-80": lambda: resolve("llama-2-70b", nodes=4, allow=NO_NODES),
    "llama-3.1-70b, 64 x H100": lambda: resolve(
        "llama-3.1-70b", "dgx-h100", nodes=8, seq_len=8192, global_batch=128, allow=NO_NODES
    ),
    "mixtral-8x7b, 16 x A100-80": lambda: resolve("mixtral-8x7b", nodes=2, allow=NO_NODES),
    "gpt-neox-20b, 16 x A100-40, EFA": lambda: resolve(
        "gpt-neox-20b", "p4d", nodes=2, allow=NO_NODES
    ),
    "opt-30b, 16 x V100": lambda: resolve("opt-30b", "p3dn", nodes=2, allow=NO_NODES),
    "mistral-7b LoRA, 8 x 4090": lambda: resolve(
        "mistral-7b", "4090-box", training={"lora": {}}, allow=NO_NODES
    ),
    "qwen2.5-32b, 8 x A100 PCIe": lambda: resolve("qwen2.5-32b", "a100-80g-pcie", allow=NO_NODES),
}


@dataclass(frozen=True)
class Truth:
    """Step times as they would be measured."""

    resolved: Resolved
    factors: dict[str, float]
    """By part of a step."""

    def seconds(self, table: PlanTable) -> np.ndarray:
        """True step time [plans]."""
        parts = evaluate(self.resolved.world, table).step.parts
        total = np.zeros(len(table))
        for name, seconds in parts.items():
            total += self.factors.get(name, 1.0) * seconds
        return total

    def measure(self, plan: Plan) -> Measurement:
        """The same of one plan, with the model's constraints."""
        found = modelled(self.resolved)(plan)
        assert found is not None
        return replace(found, seconds=float(self.seconds(PlanTable.from_plans([plan]))[0]))

    def optimum(self) -> float:
        """The fastest step of the whole space, by exhaustion."""
        times = [
            self.seconds(table).min()
            for table, _ in fitting_plans(_enumerated(self.resolved))
            if len(table)
        ]
        return float(min(times))


def _enumerated(resolved: Resolved) -> Resolved:
    """Without what is solved plan by plan: a sampler draws from the axes alone."""
    held = {name: getattr(Plan(), name) for name in SOLVED_KNOBS}
    allow = resolved.search.allow.model_copy(update={"uneven_stages": False})
    update = {"fixed": resolved.search.fixed | held, "allow": allow}
    return replace(resolved, search=resolved.search.model_copy(update=update))


def perturbed(resolved: Resolved, seed: int) -> Truth:
    """Every part off by an unknown factor."""
    rng = np.random.default_rng(seed)
    parts = evaluate(resolved.world, PlanTable.from_columns(1)).step.parts
    return Truth(resolved, {name: float(np.exp(rng.normal(0, SIGMA))) for name in sorted(parts)})


@cache
def _top(problem: str) -> tuple[Plan, ...]:
    """The start of the warm start: the best plan of each layout in rank order."""
    resolved = _enumerated(PROBLEMS[problem]())
    options = resolved.search.model_copy(update={"keep": 2000})
    seen: dict[tuple[object, ...], Plan] = {}
    for one in search(replace(resolved, search=options)).candidates:
        p = one.plan
        seen.setdefault((p.software, p.tp, p.pp, p.sp, p.ep, p.zero_stage, p.recompute), p)
    return tuple(seen.values())[:WARM]


def run(
    problem: str, sampler: SamplerName, measure: Measure, evaluations: int, seed: int, warm: bool
) -> Outcome:
    """One study."""
    resolved = _enumerated(PROBLEMS[problem]())
    start: Sequence[Plan] = _top(problem) if warm else ()
    return optimize(
        resolved,
        measure=measure,
        start=start,
        evaluations=evaluations,
        sampler_name=sampler,
        seed=seed,
    )


def regrets(outcome: Outcome, optimum: float) -> list[float]:
    """Relative regret after each budget; infinite where nothing feasible was found."""
    found = []
    for budget in BUDGETS:
        best = outcome.best_after(budget)
        seconds = best.measurement.seconds if best and best.measurement else float("inf")
        found.append(seconds / optimum - 1)
    return found


SAMPLERS: dict[str, tuple[SamplerName, bool]] = {
    "random": ("random", False),
    "NSGA-II": ("nsga2", False),
    "TPE": ("tpe", False),
    "TPE, warm start": ("tpe", True),
}


def _shown(values: list[float]) -> str:
    """The median, and how many studies found a legal plan that fits at all."""
    found = np.isfinite(values)
    if not found.any():
        return "nothing legal"
    median = f"{100 * float(np.median(values)):.1f} %" if np.median(found) == 1 else "-"
    return f"{median} ({found.sum()} of {len(found)})"


def print_regret(evaluations: int, seeds: int) -> None:
    """Median regret over problems and seeds by budget, for both truths."""
    budgets = [b for b in BUDGETS if b <= evaluations]
    for kind in ("the model is the truth", f"every part off by sigma {SIGMA}"):
        print(f"\n### {kind}\n")
        print("| sampler | " + " | ".join(f"after {b}" for b in budgets) + " | optimum within 10 |")
        print("|---|" + "---|" * (len(budgets) + 1))
        for name, (sampler, warm) in SAMPLERS.items():
            rows, reached = [], 0
            for number, problem in enumerate(PROBLEMS):
                resolved = PROBLEMS[problem]()
                exact = kind.startswith("the model")
                truth = Truth(resolved, {}) if exact else perturbed(resolved, number)
                optimum = truth.optimum()
                for seed in range(seeds):
                    outcome = run(problem, sampler, truth.measure, evaluations, seed, warm)
                    rows.append(regrets(outcome, optimum))
                    reached += rows[-1][BUDGETS.index(10)] <= (1e-9 if exact else 0.01)
            shown = [_shown([r[i] for r in rows]) for i in range(len(budgets))]
            total = len(PROBLEMS) * seeds
            print(f"| {name} | " + " | ".join(shown) + f" | {reached} of {total} |", flush=True)


def print_baseline() -> None:
    """What the exact search gains over the rule of thumb."""
    print("\n| problem | legal plans | exact, s | rule of thumb, s | gain | CPU s |")
    print("|---|---|---|---|---|---|")
    for problem, ask in PROBLEMS.items():
        result = search(ask())
        best = result.candidates[0].step.seconds
        thumb = result.baseline.step.seconds if result.baseline else float("inf")
        gain = "only the search fits" if np.isinf(thumb) else f"{100 * (thumb / best - 1):.0f} %"
        shown = "-" if np.isinf(thumb) else f"{thumb:.2f}"
        seconds = result.certificate.seconds
        print(
            f"| {problem} | {result.certificate.legal:,} | {best:.2f} | {shown} | {gain} | "
            f"{seconds:.2f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    print_baseline()
    print_regret(asked.evaluations, asked.seeds)
