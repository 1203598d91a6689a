import pytest

from planner.explain import memory_by_stage, what_if
from planner.search import SearchResult, search
from tests.planner.requests import resolve


@pytest.fixture(scope="module")
def result() -> SearchResult:
    return search(resolve("llama-2-13b", nodes=2, training={"tokens": 10**10}, keep=20))


def test_every_candidate_is_explained_against_the_best_and_the_next(result: SearchResult) -> None:
    first, *rest = result.candidates
    assert first.why is not None
    assert first.why.versus_best is None
    for one in rest:
        assert one.why is not None
        assert one.why.versus_best is not None
        gap = one.step.seconds - first.step.seconds
        assert one.why.versus_best.seconds == pytest.approx(gap)
        assert sum(one.why.versus_best.parts.values()) == pytest.approx(gap, abs=1e-6)


def test_what_bounds_a_plan_is_its_longest_part(result: SearchResult) -> None:
    for one in result.candidates:
        assert one.why is not None
        assert one.step.parts[one.why.bound_by] == max(one.step.parts.values())


def test_a_sentence_keeps_the_names_of_what_bounds_a_plan() -> None:
    resolved = resolve(
        "llama-2-7b", nodes=1, fixed={"zero_stage": 3, "offload_param": "nvme"}, keep=1
    )
    (one,) = search(resolved).candidates
    assert one.why is not None
    assert any("PCIe" in sentence for sentence in one.why.sentences), one.why.sentences


def test_days_and_cost_follow_from_the_token_budget(result: SearchResult) -> None:
    """10^10 tokens at 64 x 2048 a step are 76,294 steps."""
    one = result.candidates[0]
    assert one.run is not None
    assert one.run.steps == 76_294
    assert one.run.days == pytest.approx(76_294 * one.step.seconds / 86_400)


def test_a_result_survives_the_trip_through_json(result: SearchResult) -> None:
    assert SearchResult.from_json(result.to_json()) == result


def test_the_exact_search_is_never_worse_than_the_rule_of_thumb(result: SearchResult) -> None:
    assert result.baseline is not None
    assert result.candidates[0].step.seconds <= result.baseline.step.seconds


def test_memory_by_stage_peaks_where_the_candidate_says() -> None:
    resolved = resolve("llama-2-13b", nodes=2, fixed={"pp": 4}, keep=3)
    for one in search(resolved).candidates:
        stages = memory_by_stage(resolved.world, one.plan)
        assert len(stages) == 4
        peaks = [max(stage.phases.values()) for stage in stages]
        assert max(peaks) == pytest.approx(one.memory.total_bytes, rel=1e-6)
        assert peaks[one.memory.peak_stage] == max(peaks)


def test_twice_the_nodes_train_faster_and_half_the_network_does_not() -> None:
    resolved = resolve("llama-2-13b", nodes=2)
    best = search(resolved).candidates[0]
    answers = {one.what: one.candidate for one in what_if(resolved, best)}
    twice, half = answers["twice the nodes"], answers["half the network bandwidth"]
    assert twice is not None
    assert half is not None
    assert twice.step.tokens_per_s > best.step.tokens_per_s
    assert half.step.tokens_per_s <= best.step.tokens_per_s
