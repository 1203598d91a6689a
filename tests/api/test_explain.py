"""Why not another plan, and what a search says beside its ranking."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.samples import SHORTEST, searched, small


@pytest.fixture(scope="module")
def done(client: TestClient) -> dict[str, Any]:
    """A request that asks for everything that a search can say."""
    own = {"zero_stage": 3, "micro_batch": 1, "recompute": "full"}
    return searched(client, small(around=own, what_if=True))


def test_a_slower_plan_loses_seconds_that_add_up(client: TestClient, done: dict[str, Any]) -> None:
    found = client.get(done["links"]["explain"], params={"zero_stage": 3, "tp": 2}).json()
    assert found["verdict"] == "is slower"
    assert found["asked"] == {"zero_stage": 3, "tp": 2}
    best = done["result"]["best"]["step_seconds"]
    assert found["seconds_lost"] == pytest.approx(found["candidate"]["step"]["seconds"] - best)
    assert found["seconds_lost"] > 0
    assert sum(found["seconds_lost_by_term"].values()) == pytest.approx(found["seconds_lost"])
    assert found["missing_bytes"] == 0
    assert "s a step against" in found["sentences"][0]


def test_a_plan_that_does_not_fit_misses_bytes(client: TestClient, done: dict[str, Any]) -> None:
    knobs = {"zero_stage": 0, "tp": 1, "recompute": "none", "offload_optimizer": "none"}
    found = client.get(done["links"]["explain"], params=knobs).json()
    assert found["verdict"] == "does not fit"
    memory = found["candidate"]["memory"]
    assert found["missing_bytes"] > 0
    assert memory["total_bytes"] > memory["capacity_bytes"]
    assert found["seconds_lost_by_term"] == {}


def test_a_plan_that_breaks_a_rule_names_it(client: TestClient, done: dict[str, Any]) -> None:
    found = client.get(done["links"]["explain"], params={"tp": 3}).json()
    assert found["verdict"] == "breaks a rule"
    assert found["candidate"] is None
    assert found["sentences"]


def test_the_best_plan_is_told_to_be_it(client: TestClient, done: dict[str, Any]) -> None:
    stage = done["result"]["best"]["plan"]["zero_stage"]
    found = client.get(done["links"]["explain"], params={"zero_stage": stage}).json()
    assert found["verdict"] == "is the best"


@pytest.mark.parametrize("text", ["zero_stage=3,tp=2", '{"zero_stage": 3, "tp": 2}'])
def test_the_resource_explains_too(client: TestClient, done: dict[str, Any], text: str) -> None:
    plain = client.get(done["links"]["self"]).json()
    assert plain["explanation"] is None
    asked = client.get(done["links"]["self"], params={"explain": text}).json()
    assert asked["explanation"]["asked"] == {"zero_stage": 3, "tp": 2}
    assert asked | {"explanation": None} == plain


@pytest.mark.parametrize(
    ("query", "parameter", "words"),
    [
        ("explain?tq=8", "tq", "tp"),
        ("explain?tp=x", "tp", "integer"),
        ("explain?zero_stage=9", "zero_stage", "3"),
        ("explain?recompute=some", "recompute", "selective"),
        ("explain", "tp", "at least one knob"),
        ("?explain=tq=8", "explain", "tp"),
        ("?explain=tp", "explain", "tp=8"),
        ("?explain={", "explain", "JSON"),
        ("?explain=zero_stage=9", "explain", "3"),
    ],
)
def test_a_bad_question_names_the_parameter(
    client: TestClient, done: dict[str, Any], query: str, parameter: str, words: str
) -> None:
    separator = "" if query.startswith("?") else "/"
    answer = client.get(f"{done['links']['self']}{separator}{query}")
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    error = answer.json()["errors"][0]
    assert (error["parameter"], error["location"]) == (parameter, "query")
    assert words in f"{error['given']} {error['wanted']}"


def test_a_search_that_is_not_done_cannot_explain(client: TestClient) -> None:
    accepted = client.post("/v1/plans", json=SHORTEST).json()
    client.post(accepted["links"]["cancel"])
    answer = client.get(accepted["links"]["explain"], params={"tp": 8})
    assert answer.status_code == 409
    assert "search" in answer.json()["detail"]


def test_the_result_has_what_was_found_beside_the_ranking(done: dict[str, Any]) -> None:
    result = done["result"]
    own = result["around"]["candidate"]["plan"]
    assert (own["zero_stage"], own["dp"], own["grad_accum"]) == (3, 8, 32)
    assert all(better["sentence"] for better in result["around"]["improvements"])
    assert {"one more node", "twice the nodes"} <= {w["what"] for w in result["what_if"]}
    assert result["baseline"]["step"]["seconds"] >= result["best"]["step_seconds"]
    assert all(note.endswith(".") for note in result["notes"])
    assert result["seq_len"] is None


def test_a_sequence_that_was_searched_for_is_the_one_that_is_shown(client: TestClient) -> None:
    request = small(objective="largest_sequence")
    request["model"] = {"preset": "llama-3.1-8b"}
    plan = searched(client, request)
    longest = plan["result"]["seq_len"]
    assert longest > 4096
    best = client.get(plan["links"]["candidates"] + "/1").json()
    stages = max(max(stage["phases"].values()) for stage in best["stages"])
    assert stages == pytest.approx(best["memory"]["total_bytes"], rel=0.01)
