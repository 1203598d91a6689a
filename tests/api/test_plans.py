"""The main path over HTTP: post, follow, page, look, export."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.samples import SHORTEST, finished, searched, small


@pytest.fixture(scope="module")
def done(client: TestClient) -> dict[str, Any]:
    """A request whose search is done."""
    return searched(client, SHORTEST)


def test_the_main_path_works_on_both_databases(client_on: TestClient) -> None:
    answer = client_on.post("/v1/plans", json=SHORTEST)
    assert answer.status_code == 202
    accepted = answer.json()
    assert accepted["status"] in {"queued", "running"}
    assert answer.headers["location"] == accepted["links"]["self"]
    plan = finished(client_on, accepted["id"])
    assert plan["status"] == "succeeded", plan["error"]
    assert plan["certificate"]["fitting"] >= plan["result"]["kept"] == 50
    page = client_on.get(plan["links"]["candidates"], params={"limit": 10}).json()
    assert [c["rank"] for c in page["items"]] == list(range(1, 11))
    best = client_on.get(page["items"][0]["links"]["self"]).json()
    assert sum(best["step"]["parts"].values()) == pytest.approx(best["step"]["seconds"])
    config = client_on.get(best["links"]["ds_config"]).json()
    assert config["train_batch_size"] % 256 == 0
    assert config["zero_optimization"]["stage"] == best["plan"]["zero_stage"]


def test_the_summary_says_what_the_request_resolved_to(done: dict[str, Any]) -> None:
    assert done["summary"]["model"]["parameters"] == 13_015_864_320
    assert done["summary"]["cluster"]["gpus"] == 8
    assert done["request"] == SHORTEST


def test_progress_ends_with_every_legal_plan_evaluated(done: dict[str, Any]) -> None:
    legal = done["certificate"]["legal"]
    assert done["progress"] == {"evaluated": legal, "known": legal}


def test_pages_follow_next_to_the_end_without_gaps(
    client: TestClient, done: dict[str, Any]
) -> None:
    ranks: list[int] = []
    following = done["links"]["candidates"] + "?limit=7&sort=-memory_gib"
    memory = []
    while following:
        page = client.get(following).json()
        ranks += [c["rank"] for c in page["items"]]
        memory += [c["memory_gib"] for c in page["items"]]
        following = page["next"]
    assert sorted(ranks) == list(range(1, 51))
    assert memory == sorted(memory, reverse=True)


def test_the_ranking_runs_from_the_fastest_to_the_slowest_and_no_two_plans_read_alike(
    client: TestClient, done: dict[str, Any]
) -> None:
    items = client.get(done["links"]["candidates"], params={"limit": 50}).json()["items"]
    seconds = [c["step_seconds"] for c in items]
    assert seconds == sorted(seconds)
    assert len({c["summary"] for c in items}) == len(items)


def test_filters_pick_by_knob_and_by_measure(client: TestClient, done: dict[str, Any]) -> None:
    url = done["links"]["candidates"]
    every = client.get(url, params={"limit": 1000}).json()["items"]
    stage = client.get(url, params={"zero_stage": 3, "fits": True, "limit": 1000}).json()["items"]
    assert [c["rank"] for c in stage] == [
        c["rank"] for c in every if c["plan"]["zero_stage"] == 3 and c["fits"]
    ]
    middle = sorted(c["memory_gib"] for c in every)[25]
    small_ones = client.get(url, params={"max_memory_gib": middle, "limit": 1000}).json()["items"]
    assert [c["rank"] for c in small_ones] == [
        c["rank"] for c in every if c["memory_gib"] <= middle
    ]
    several = client.get(url, params=[("tp", 1), ("tp", 2), ("max_pp", 1), ("limit", 1000)]).json()
    assert [c["rank"] for c in several["items"]] == [
        c["rank"] for c in every if c["plan"]["tp"] in {1, 2} and c["plan"]["pp"] <= 1
    ]
    named = client.get(url, params={"recompute": "none", "limit": 1000}).json()["items"]
    assert [c["rank"] for c in named] == [
        c["rank"] for c in every if c["plan"]["recompute"] == "none"
    ]


def test_the_next_page_keeps_the_filters(client: TestClient, done: dict[str, Any]) -> None:
    page = client.get(done["links"]["candidates"], params={"zero_stage": 3, "limit": 1}).json()
    following = client.get(page["next"]).json()
    assert following["items"][0]["plan"]["zero_stage"] == 3
    assert following["items"][0]["rank"] > page["items"][0]["rank"]


def test_the_detail_adds_up(client: TestClient, done: dict[str, Any]) -> None:
    best = client.get(done["links"]["candidates"] + "/1").json()
    memory = best["memory"]
    assert sum(memory["categories"].values()) == pytest.approx(memory["total_bytes"])
    assert memory["capacity_bytes"] == pytest.approx(79.15 * 2**30)
    assert best["run"] is None
    worst = max(max(stage["phases"].values()) for stage in best["stages"])
    assert worst == pytest.approx(memory["total_bytes"], rel=0.01)
    assert best["why"]["sentences"]
    assert best["why"]["versus_next"]["rank"] == 2


def test_a_token_budget_gives_days_and_cost(client: TestClient) -> None:
    request = small()
    request["training"] = request["training"] | {"tokens": 10**11}
    request["cluster"] = request["cluster"] | {"usd_per_gpu_hour": 2.0}
    best = searched(client, request)["result"]["best"]
    steps = -(-(10**11) // (4096 * 256))
    assert best["days"] == pytest.approx(steps * best["step_seconds"] / 86_400)
    assert best["usd"] == pytest.approx(best["days"] * 24 * best["gpus"] * 2.0)


def test_where_nothing_fits_the_answer_says_what_would(client: TestClient) -> None:
    request: dict[str, Any] = {
        "model": "llama-2-70b",
        "cluster": {"preset": "dgx-a100-80g", "nodes": 1},
        "training": {"seq_len": 4096, "global_batch": 64},
        "search": {"allow": {"offload": False, "nvme": False}, "software": ["deepspeed"]},
    }
    plan = searched(client, request)
    assert plan["status"] == "succeeded"
    assert plan["result"]["kept"] == 0
    nothing = plan["result"]["nothing_fits"]
    assert nothing["missing_bytes"] > 0
    assert nothing["nearest"][0]["memory"]["total_bytes"] > 79.15 * 2**30
    patches = [change["patch"] for change in nothing["changes"]]
    assert any("lora" in patch.get("training", {}) for patch in patches)
    assert any("cluster" in patch for patch in patches)


def test_the_same_key_searches_once(client: TestClient) -> None:
    headers = {"Idempotency-Key": "one"}
    first = client.post("/v1/plans", json=small(), headers=headers)
    second = client.post("/v1/plans", json=small(), headers=headers)
    assert second.json()["id"] == first.json()["id"]
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    other = client.post("/v1/plans", json=small(keep=3), headers=headers)
    assert other.status_code == 409


def test_events_end_with_the_last_state(client: TestClient) -> None:
    accepted = client.post("/v1/plans", json=small()).json()
    with client.stream("GET", accepted["links"]["events"]) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        text = "".join(stream.iter_text())
    events = [
        dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        for block in text.strip().split("\n\n")
    ]
    assert events[-1]["event"] == "end"
    assert json.loads(events[-1]["data"])["status"] == "succeeded"


def test_requests_are_listed_and_paged(client: TestClient, done: dict[str, Any]) -> None:
    client.post("/v1/plans", json=small())
    ids = []
    following = "/v1/plans?limit=2"
    while following:
        page = client.get(following).json()
        ids += [p["id"] for p in page["items"]]
        following = page["next"]
    assert done["id"] in ids
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == len(set(ids))


def test_a_search_that_is_done_cannot_be_cancelled(
    client: TestClient, done: dict[str, Any]
) -> None:
    assert client.post(done["links"]["cancel"]).status_code == 409
    assert client.delete(done["links"]["self"]).status_code == 409


def test_an_answer_is_tagged_and_not_sent_twice(client: TestClient, done: dict[str, Any]) -> None:
    first = client.get(done["links"]["self"])
    again = client.get(done["links"]["self"], headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""
    other = client.get(done["links"]["self"], headers={"If-None-Match": '"other"'})
    assert other.json() == first.json()


def test_one_plan_is_predicted_at_once(client: TestClient) -> None:
    plan = {"zero_stage": 3, "micro_batch": 1, "recompute": "full"}
    answer = client.post("/v1/predict", json=SHORTEST | {"plan": plan})
    assert answer.status_code == 200, answer.text
    one = answer.json()
    assert one["plan"]["dp"] == 8
    assert one["plan"]["grad_accum"] == 32
    assert one["violations"] == []
    assert sum(one["step"]["parts"].values()) == pytest.approx(one["step"]["seconds"])


def test_a_plan_that_breaks_a_rule_is_predicted_and_told_so(client: TestClient) -> None:
    plan = {"software": "deepspeed_pipeline", "pp": 2, "dp": 4, "zero_stage": 3}
    one = client.post("/v1/predict", json=SHORTEST | {"plan": plan}).json()
    assert one["violations"]


def test_a_config_json_inline_is_as_good_as_a_preset(client: TestClient) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    plan = searched(client, small() | {"model": {"config": config}})
    assert plan["summary"]["model"]["parameters"] == 13_015_864_320


def test_the_catalogue_is_listed(client: TestClient) -> None:
    models = {m["preset"]: m for m in client.get("/v1/models").json()["items"]}
    assert models["llama-2-13b"]["parameters"] == 13_015_864_320
    clusters = {c["preset"]: c for c in client.get("/v1/hardware").json()["clusters"]}
    assert clusters["dgx-a100-80g"]["gpus_per_node"] == 8


def test_the_service_says_that_it_is_ready(client: TestClient) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"


def test_every_format_is_listed_and_answers_with_a_file_or_a_reason(
    client: TestClient, done: dict[str, Any]
) -> None:
    formats = client.get(done["links"]["candidates"] + "/1/exports").json()["items"]
    assert {"ds_config", "hf_trainer", "accelerate", "launch", "bundle"} <= set(formats)
    for url in formats.values():
        answer = client.get(url)
        if answer.status_code == 200:
            assert answer.content
            assert "filename=" in answer.headers["content-disposition"]
            every = client.get(url, params={"files": True}).json()
            assert every["main"] in every["files"]
        else:
            assert answer.status_code == 409
            assert answer.json()["detail"]
    assert client.get(formats["bundle"]).headers["content-type"] == "application/zip"
    plain = client.get(formats["ds_config"]).json()
    assert plain == client.get(done["links"]["candidates"] + "/1/ds_config").json()
    assert client.get(done["links"]["candidates"] + "/1/exports/none").status_code == 404
