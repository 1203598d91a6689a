"""The search for the entropy's weight: what imbalance costs, and that the least time is found."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from cost_model.catalogue import cluster, model
from cost_model.plans import Plan, PlanTable
from cost_model.specs import TrainingSpec
from cost_model.step import step_time
from tests.trials.conftest import make_trial
from tests.trials.models import decoder
from trials.entropy import Point, Proxy, SearchSettings, StepCost, search
from trials.entropy.cost import seconds_to, smoothed
from trials.entropy.language import SkewedLanguage
from trials.entropy.nodes import trials_on
from trials.entropy.proxy import StepSeen
from trials.executors.local import LocalExecutor
from trials.result import ExpertLoad

PROPORTIONAL = StepCost(np.array([1.0, 8.0]), np.array([1.0, 8.0]))
"""A second for a balanced step, two where an expert has twice its share."""


def imbalance(weight: float) -> float:
    return 1.0 + float(np.exp(-20.0 * weight))


def trains(point: Point, seed: int) -> Iterator[StepSeen]:
    """Loss falls by a straight line from 2, more slowly the larger the weight; no noise."""
    load = ExpertLoad(cv=0.0, max_over_mean=imbalance(point.weight), dropped=0.0)
    for step in itertools.count(1):
        yield StepSeen(2.0 - 0.01 * step / (1.0 + point.weight), load)


def test_a_smoothed_curve_forgets_by_its_span() -> None:
    # weights 1 and 1/2: (2 + 4 / 2) / 1.5
    assert smoothed(np.array([4.0, 2.0]), span=2).tolist() == pytest.approx([4.0, 8 / 3])


def test_the_time_to_a_loss_is_that_of_the_steps_before_it() -> None:
    losses, seconds = np.array([3.0, 2.0, 1.0]), np.array([1.0, 2.0, 4.0])
    assert seconds_to(2.0, losses, seconds) == 3.0


def test_a_curve_that_ends_early_goes_on_at_its_last_pace() -> None:
    losses, seconds = np.array([4.0, 3.0, 2.0]), np.array([1.0, 1.0, 1.0])
    assert seconds_to(0.5, losses, seconds) == pytest.approx(4.5)


def test_a_curve_that_stands_still_counts_ten_times_its_length() -> None:
    assert seconds_to(0.5, np.full(6, 2.0), np.full(6, 1.0)) == pytest.approx(60.0)


def test_dropless_experts_cost_their_busiest_and_a_capacity_costs_itself() -> None:
    load = np.array([1.0, 3.0])
    assert PROPORTIONAL.of(0.0, load).tolist() == [1.0, 3.0]
    assert PROPORTIONAL.of(1.5, load).tolist() == [1.5, 1.5]


def test_the_cost_of_a_plan_is_the_cost_models_at_that_capacity() -> None:
    mixtral, nodes = model("mixtral-8x7b"), cluster("dgx-a100-80g", 1)
    training = TrainingSpec(seq_len=2048, global_batch=64)
    plan = Plan(dp=8, ep=8, zero_stage=2, grad_accum=8)
    cost = StepCost.of_plan(mixtral, nodes, training, plan)
    table = PlanTable.from_plans([plan.model_copy(update={"capacity_factor": 2.0})])
    wanted = step_time(mixtral, nodes, training, table).seconds[0]
    assert cost.of(2.0, np.array([1.0]))[0] == pytest.approx(wanted, rel=1e-6)
    assert cost.of(0.0, np.array([2.0]))[0] == pytest.approx(wanted, rel=1e-6)


def test_a_model_without_experts_has_no_such_cost() -> None:
    with pytest.raises(ValueError, match="no experts"):
        StepCost.of_plan(
            decoder(), cluster("dgx-a100-80g", 1), TrainingSpec(seq_len=8, global_batch=8), Plan()
        )


SETTINGS = SearchSettings(n_trials=30, steps=100, capacities=(0.0,), pruner="none")


def test_the_search_finds_the_least_time_between_too_little_and_too_much() -> None:
    # steps grow with 1 + w, each step costs 1 + exp(-20 w): a plain loop knows the minimum
    weights = np.linspace(0.0, 10.0, 100_001)
    least = np.min((1 + weights) * (1 + np.exp(-20 * weights)))
    best = search(trains, PROPORTIONAL, SETTINGS).best.point.weight
    assert (1 + best) * imbalance(best) <= 1.05 * least


def test_a_study_repeats_exactly() -> None:
    assert search(trains, PROPORTIONAL, SETTINGS) == search(trains, PROPORTIONAL, SETTINGS)


@pytest.mark.parametrize("pruner", ["median", "halving"])
def test_pruned_points_stop_early_and_are_never_chosen(pruner: str) -> None:
    settings = SearchSettings(n_trials=24, steps=100, pruner=pruner)  # type: ignore[arg-type]
    study = search(trains, PROPORTIONAL, settings)
    assert study.pruned > 0
    assert all(t.steps < 100 for t in study.trials if t.seconds_to_target is None)
    done = {t.point for t in study.trials if t.seconds_to_target is not None}
    assert {t.point for t in study.finals} <= done
    assert study.best.point in {t.point for t in study.finals}


def test_a_lucky_point_of_the_search_loses_on_further_seeds() -> None:
    def lucky(point: Point, seed: int) -> Iterator[StepSeen]:
        load = ExpertLoad(cv=0.0, max_over_mean=1.0, dropped=0.0)
        pace = 1.2 if point.weight == 0.1 and seed == 1 else 0.5 if point.weight == 0.1 else 1.0
        for step in itertools.count(1):
            yield StepSeen(2.0 - 0.01 * pace * step, load)

    study = search(lucky, PROPORTIONAL, SETTINGS.model_copy(update={"n_trials": 2}))
    times = {t.point.weight: t.seconds_to_target or 0.0 for t in study.trials}
    assert times[0.1] < times[0.0]
    assert study.best.point.weight == 0.0


def test_the_language_is_as_skewed_as_zipf_says() -> None:
    # 1 / (1 + 1/4 + 1/9 + ... + 1/64) = 0.6547
    assert float(SkewedLanguage().frequencies()[0]) == pytest.approx(0.6547, abs=1e-4)


def test_a_proxy_has_the_experts_of_the_model_that_is_meant() -> None:
    proxy = Proxy.like(model("mixtral-8x7b"))
    assert (proxy.experts, proxy.top_k) == (8, 2)
    with pytest.raises(ValueError, match="no experts"):
        Proxy.like(decoder())


@pytest.mark.slow
def test_a_bonus_evens_the_load_of_a_proxy_and_a_run_repeats_exactly() -> None:
    proxy = Proxy(sequences=8)

    def run(weight: float) -> list[StepSeen]:
        return list(itertools.islice(proxy.train(Point(weight=weight), 5), 40))

    none, some = run(0.0), run(1.0)
    assert np.mean([s.load.cv for s in some[-10:]]) < np.mean([s.load.cv for s in none[-10:]])
    assert some == run(1.0)


@pytest.mark.slow
def test_a_study_over_real_trials_finds_them_again(local: LocalExecutor) -> None:
    options = {"warmup_steps": 0, "steps": 10, "same_batch": False, "data": "bytes"}
    template = make_trial("study", decoder(experts=4), trial=options, dp=2, ep=2, zero_stage=1)
    settings = SearchSettings(n_trials=3, steps=10, capacities=(1.0,), pruner="none")
    train = trials_on(local, template, poll_s=0.02)
    study = search(train, PROPORTIONAL, settings)
    assert [t.point.weight for t in study.trials[:2]] == [0.0, 0.1]
    assert study.trials[0].dropped > 0
    folders = list(local.root.glob("study-*"))
    assert search(train, PROPORTIONAL, settings) == study
    assert sorted(folders) == sorted(local.root.glob("study-*"))
