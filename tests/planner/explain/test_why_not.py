import pytest

from planner.errors import RequestError
from planner.explain import why_not
from planner.request import PlanRequest, Resolved
from planner.search import SearchResult, search
from tests.planner.requests import resolve

Found = tuple[Resolved, SearchResult]


@pytest.fixture(scope="module")
def found() -> Found:
    resolved = resolve("llama-2-70b", nodes=4, seq_len=4096, global_batch=256)
    return resolved, search(resolved)


def test_a_combination_that_no_rule_allows_names_the_rule_and_the_engine_s_reason(
    found: Found,
) -> None:
    resolved, result = found
    answer = why_not(resolved, {"pp": 2, "zero_stage": 3}, result.candidates[0])
    assert answer.verdict == "breaks a rule"
    assert "[pipeline-zero]" in answer.sentences[0]


def test_a_degree_that_divides_nothing_is_told_what_would(found: Found) -> None:
    resolved, result = found
    answer = why_not(resolved, {"tp": 3}, result.candidates[0])
    assert answer.verdict == "breaks a rule"
    assert "64 attention heads cannot be split over tp=3" in answer.sentences[0]


def test_a_plan_too_large_is_told_the_bytes_it_misses(found: Found) -> None:
    """ZeRO 0 without model parallelism holds 16 bytes or more for each of 69 billion parameters."""
    resolved, result = found
    asked = {"software": "deepspeed", "zero_stage": 0, "tp": 1}
    answer = why_not(resolved, asked, result.candidates[0])
    assert answer.verdict == "does not fit"
    assert answer.missing_bytes > 69e9 * 16 - 80 * 2**30


def test_a_slower_plan_is_told_the_seconds_by_term(found: Found) -> None:
    resolved, result = found
    answer = why_not(resolved, {"tp": 8, "pp": 4}, result.candidates[0])
    assert answer.verdict == "is slower"
    assert answer.candidate is not None
    assert answer.versus_best is not None
    assert (answer.candidate.plan.tp, answer.candidate.plan.pp) == (8, 4)
    assert answer.versus_best.seconds == pytest.approx(sum(answer.versus_best.parts.values()))
    assert answer.versus_best.seconds > 0


def test_asking_for_the_best_plan_says_that_it_is_the_best(found: Found) -> None:
    resolved, result = found
    best = result.candidates[0]
    asked = best.plan.model_dump(mode="json")
    assert why_not(resolved, asked, best).verdict == "is the best"


def test_an_unknown_knob_is_refused_with_a_hint(found: Found) -> None:
    resolved, result = found
    with pytest.raises(RequestError, match="did you mean 'zero_stage'"):
        why_not(resolved, {"zero_stag": 3}, result.candidates[0])
    with pytest.raises(RequestError, match="/explain/zero_stage"):
        why_not(resolved, {"zero_stage": 7}, result.candidates[0])


def test_of_several_groups_the_best_option_with_the_asked_knobs_answers() -> None:
    groups = [{"preset": "dgx-a100-80g", "nodes": 1}, {"preset": "dgx-h100", "nodes": 1}]
    resolved = PlanRequest.parse(
        {
            "model": {"preset": "llama-2-13b"},
            "cluster": {"groups": groups},
            "training": {"seq_len": 2048, "global_batch": 64},
            "search": {"software": ["deepspeed", "deepspeed_pipeline"]},
        }
    ).resolve()
    best = search(resolved).candidates[0]
    assert best.plan.placement
    whole = why_not(resolved, {"pp": 1}, best)
    assert whole.verdict == "is slower"
    assert whole.candidate is not None
    assert whole.candidate.cluster == "dgx-h100"
    assert why_not(resolved, {"placement": best.plan.placement}, best).verdict == "is the best"
