from collections.abc import Callable

import pytest

from cost_model.plans import Plan
from planner.rules import violations
from planner.search import Measurement, optimize, search
from planner.search.knobs import CONTINUOUS, AroundPlan, WholeSpace
from planner.search.optimize import SamplerName
from tests.planner.benchmarks.regret import PROBLEMS, Truth, perturbed, regrets, run
from tests.planner.requests import resolve

SOLVED = (
    *("recompute_layers", "reduce_bucket", "max_live_params", "offload_ratio"),
    *("first_stage_layers", "last_stage_layers", "placement", "overlap_comm", "prefetch_bucket"),
)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_warm_start_reaches_the_optimum_of_the_model_within_ten_evaluations(
    problem: str,
) -> None:
    truth = Truth(PROBLEMS[problem](), {})
    outcome = run(problem, "tpe", truth.measure, 10, seed=0, warm=True)
    assert regrets(outcome, truth.optimum())[1] == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
def test_a_warm_start_from_a_wrong_model_reaches_the_optimum_on_nine_of_ten_problems() -> None:
    """Each part of the step is off by its own unknown factor of sigma 0.2."""
    reached = 0
    for number, problem in enumerate(PROBLEMS):
        truth = perturbed(PROBLEMS[problem](), number)
        outcome = run(problem, "tpe", truth.measure, 10, seed=0, warm=True)
        reached += regrets(outcome, truth.optimum())[1] <= 0.01
    assert reached >= 9


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random", "qmc"])
def test_every_sampler_finds_a_plan_that_keeps_the_rules_and_fits(sampler: SamplerName) -> None:
    resolved = resolve("llama-2-7b", software=["deepspeed"], allow={"nvme": False, "hpz": False})
    outcome = optimize(resolved, evaluations=40, sampler_name=sampler, seed=1)
    assert len(outcome.evaluations) == 40
    assert outcome.best is not None
    assert violations(resolved.world, outcome.best.plan) == []


def test_the_same_seed_evaluates_the_same_plans() -> None:
    resolved = resolve("llama-2-7b")
    first, second = (optimize(resolved, evaluations=15, seed=3) for _ in range(2))
    assert [e.plan for e in first.evaluations] == [e.plan for e in second.evaluations]


def test_no_plan_is_measured_twice_and_a_dead_one_is_not_the_end() -> None:
    resolved = resolve("llama-2-7b")
    start = [c.plan for c in search(resolved).candidates[:6]]
    measured: list[Plan] = []

    def measure(plan: Plan) -> Measurement | None:
        measured.append(plan)
        return None if len(measured) == 1 else Measurement(len(measured), {})

    outcome = optimize(resolved, measure=measure, start=[*start, *start], evaluations=12)
    assert len(measured) == len(set(measured)) == 12
    assert [e.plan for e in outcome.evaluations[:6]] == start
    assert outcome.evaluations[0].measurement is None
    assert outcome.best is not None
    assert outcome.best.plan == start[1]


def test_a_plan_becomes_parameters_and_comes_back() -> None:
    resolved = resolve("llama-2-13b", nodes=2)
    knobs = WholeSpace(resolved)
    for one in search(resolved).candidates[:10]:
        drawn = knobs.parameters(one.plan)
        solved = {name: getattr(one.plan, name) for name in SOLVED}
        assert (drawn is None) == (solved != {name: getattr(Plan(), name) for name in SOLVED})
        if drawn is None:
            continue

        class Fixed:
            params = drawn

            def suggest_categorical(self, name: str, choices: list[object]) -> object:
                assert self.params[name] in choices
                return self.params[name]

        assert knobs.suggest(Fixed()) == one.plan  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("knob", "cost", "best"),
    [
        ("reduce_bucket", lambda p: abs(p.reduce_bucket - 2e8) / 1e8, 2e8),
        ("offload_ratio", lambda p: abs(p.offload_ratio - 0.3), 0.3),
    ],
)
def test_continuous_knobs_are_tuned_around_one_plan(
    knob: str, cost: Callable[[Plan], float], best: float
) -> None:
    base = Plan(dp=8, zero_stage=3, grad_accum=8, offload_optimizer=1)
    outcome = optimize(
        resolve("llama-2-7b"),
        knobs=AroundPlan(base, {knob: CONTINUOUS[knob]}),
        measure=lambda plan: Measurement(1 + cost(plan), {}),
        start=[base],
        evaluations=60,
    )
    assert outcome.best is not None
    assert getattr(outcome.best.plan, knob) == pytest.approx(best, rel=0.2)
    assert outcome.best.plan.model_copy(update={knob: getattr(base, knob)}) == base
