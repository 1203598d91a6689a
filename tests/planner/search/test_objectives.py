from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.objectives import TIE_BREAKERS, pareto_front
from planner.ranking import fitting_plans
from planner.request import PlanRequest
from planner.search import search
from planner.search.longest import at_length, longest_sequence
from tests.planner.requests import resolve

TOKENS = {"training": {"tokens": 10**10}}


def test_cost_is_the_gpu_seconds_of_a_step() -> None:
    found = search(resolve("llama-2-13b", nodes=4, objective="cost", keep=30)).candidates
    costs = [c.step.seconds * c.gpus for c in found]
    assert costs == sorted(costs)
    fastest = search(resolve("llama-2-13b", nodes=4)).candidates[0]
    assert costs[0] <= fastest.step.seconds * fastest.gpus * (1 + 1e-9)


def test_the_fewest_gpus_that_meet_a_deadline_are_found() -> None:
    """No plan on fewer nodes is as quick, by exhaustion over node counts."""
    deadline = 4.0
    asked = resolve(
        "llama-2-13b", nodes=4, objective="fewest_gpus", deadline_days=deadline, **TOKENS
    )
    best = search(asked).candidates[0]
    assert best.run is not None
    assert best.run.days <= deadline
    for nodes in range(1, best.plan.nodes):
        fewer = search(resolve("llama-2-13b", nodes=nodes, **TOKENS)).candidates[0]
        assert fewer.run is not None
        assert fewer.run.days > deadline


def test_a_deadline_leaves_the_plans_that_are_done_in_time_and_no_others() -> None:
    """What is dropped early for being late is late in a ranking without a deadline too."""
    free = search(resolve("llama-2-13b", nodes=2, keep=10_000, **TOKENS)).candidates
    days = sorted(c.run.days for c in free if c.run is not None)
    deadline = days[len(days) // 4]
    asked = resolve("llama-2-13b", nodes=2, keep=10_000, deadline_days=deadline, **TOKENS)
    kept = search(asked).candidates
    in_time = [c.plan for c in free if c.run is not None and c.run.days <= deadline]
    assert 0 < len(in_time) < len(free)
    assert [c.plan for c in kept] == in_time


def test_a_deadline_that_no_plan_meets_leaves_none() -> None:
    asked = resolve("llama-2-13b", objective="fewest_gpus", deadline_days=0.01, **TOKENS)
    result = search(asked)
    assert result.candidates == ()
    assert result.nothing_fits is not None
    quickest = result.nothing_fits.nearest[0]
    assert quickest.run is not None
    assert result.nothing_fits.late_days == pytest.approx(quickest.run.days - 0.01)
    assert result.nothing_fits.missing_bytes == 0
    later = result.nothing_fits.changes[-1].patch["search"]["deadline_days"]
    assert quickest.run.days <= later < quickest.run.days + 0.01
    options = {"objective": "fewest_gpus", "deadline_days": later}
    assert search(resolve("llama-2-13b", **options, **TOKENS)).candidates


def test_the_largest_micro_batch_is_the_largest_that_fits() -> None:
    resolved = resolve("llama-2-7b", objective="largest_micro_batch")
    best = search(resolved).candidates[0]
    largest = max(int(t.micro_batch.max()) for t, _ in fitting_plans(resolved) if len(t))
    assert best.plan.micro_batch == largest


def test_the_longest_sequence_fits_and_the_next_does_not() -> None:
    resolved = resolve(
        "llama-3.1-8b", objective="largest_sequence", global_batch=8, allow={"offload": False}
    )
    result = search(resolved)
    assert result.seq_len == longest_sequence(resolved)
    assert result.seq_len is not None
    assert result.candidates
    longer = at_length(resolved, result.seq_len + 1024)
    plain = replace(longer, search=longer.search.model_copy(update={"objective": "throughput"}))
    model_limit = resolved.model.max_seq_len
    assert not search(plain).candidates or result.seq_len == model_limit


def test_no_plan_of_the_pareto_front_beats_another_in_everything() -> None:
    front = search(resolve("llama-2-13b", nodes=2, objective="pareto")).candidates
    points = [(c.step.seconds, c.memory.total_bytes, c.step.seconds * c.gpus) for c in front]
    assert len(points) > 3
    for one in points:
        assert not any(
            other != one and all(a <= b for a, b in zip(other, one, strict=True))
            for other in points
        )


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=30))
def test_the_front_equals_a_loop_over_pairs(points: list[tuple[int, int, int]]) -> None:
    array = np.array(points, float)
    front = {tuple(p) for p in array[pareto_front(array)]}
    expected = {
        p
        for p in points
        if not any(q != p and all(a <= b for a, b in zip(q, p, strict=True)) for q in points)
    }
    assert front == expected
    assert pareto_front(array).sum() == len(expected)


def test_a_batch_in_tokens_that_is_no_whole_number_of_sequences_is_told() -> None:
    def notes(tokens: int) -> str:
        training = {"seq_len": 2048, "global_batch_tokens": tokens}
        request = {"model": "llama-2-7b", "cluster": "dgx-a100-80g", "training": training}
        return " ".join(search(PlanRequest.parse(request).resolve()).notes)

    assert "rounded down to 48 of 2,048 tokens, 98,304 in all" in notes(100_000)
    assert "rounded" not in notes(48 * 2048)


def test_expected_ranking_puts_a_surer_plan_before_a_slightly_faster_one() -> None:
    options = {"min_fits_probability": 0.5, "keep": 500}
    plain = search(resolve("llama-2-13b", nodes=2, seq_len=4096, **options)).candidates
    risky = search(
        resolve("llama-2-13b", nodes=2, seq_len=4096, rank_by="expected", **options)
    ).candidates
    expected = [c.step.seconds / c.fits_probability for c in risky]
    assert expected == sorted(expected)
    assert risky[0].fits_probability >= plain[0].fits_probability


@pytest.mark.parametrize("gib", [5.0, 20.0])
def test_demanded_headroom_stays_free(gib: float) -> None:
    for one in search(resolve("llama-2-13b", headroom_gib=gib)).candidates:
        assert one.memory.headroom_bytes >= gib * 2**30


def test_of_plans_equal_in_every_figure_the_simplest_is_first() -> None:
    """On one replica ZeRO 0 and 1 hold and take the same."""
    found = search(resolve("llama-2-7b", cluster="4090-box")).candidates
    tied = [
        (one, two)
        for one, two in pairwise(found)
        if one.memory.total_bytes == two.memory.total_bytes
        and one.step.seconds == pytest.approx(two.step.seconds, rel=1e-9)
    ]
    assert tied
    for one, two in tied:
        mine, theirs = ([getattr(c.plan, name) for name in TIE_BREAKERS] for c in (one, two))
        assert mine < theirs
        assert one.why is not None
        assert any("the simpler of the two goes first" in said for said in one.why.sentences)


def test_a_batch_that_leaves_the_gpus_idle_is_told() -> None:
    """Three sequences for 64 GPUs: most have less than a twentieth of one to work on."""
    few = search(resolve("gpt-oss-120b", "dgx-1", nodes=8, global_batch=3))
    assert any("3 sequences a step are too few" in note for note in few.notes)
    many = search(resolve("llama-2-7b", global_batch=64))
    assert not any("too few" in note for note in many.notes)
