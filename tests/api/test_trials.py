"""Trials over HTTP, on this machine's processors."""

import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.samples import TINY, ended, searched

pytest.importorskip("deepspeed")


@pytest.fixture(scope="module")
def done(client: TestClient) -> dict[str, Any]:
    return searched(client, TINY)


def _posted(client: TestClient, done: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    answer = client.post(done["links"]["trials"], json={"candidates": [1]} | body)
    assert answer.status_code == 202, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


@pytest.mark.slow
def test_candidates_are_tried_with_a_time_series_of_every_rank(
    client: TestClient, done: dict[str, Any]
) -> None:
    made = _posted(client, done, candidates=[1, 2], steps=3, warmup_steps=1, same_batch=True)
    assert [t["candidate"] for t in made] == [1, 2]
    for accepted in made:
        trial = ended(client, accepted["links"]["self"])
        assert trial["status"] == "succeeded", trial["error"]
        assert trial["outcome"]["kind"] == "ok", trial["outcome"]
        assert [r["rank"] for r in trial["ranks"]] == [0, 1]
        for rank in trial["ranks"]:
            assert len(rank["warmup"]) == 1
            assert len(rank["steps"]) == 3
            assert all(s["seconds"] > 0 for s in rank["steps"])
            assert rank["memory"]
        middle = sorted(max(r["steps"][i]["seconds"] for r in trial["ranks"]) for i in range(3))[1]
        assert trial["step_seconds"] == pytest.approx(middle)
        assert len(trial["losses"]) == 4
        assert trial["losses"][-1] < trial["losses"][0]
        assert trial["predicted"]["seconds"] > 0
        assert client.get(trial["links"]["logs"]).headers["content-type"].startswith("text/plain")
        assert client.post(trial["links"]["cancel"]).status_code == 409
    listed = client.get("/v1/trials", params={"plan_id": done["id"], "status": "succeeded"}).json()
    assert {t["id"] for t in made} <= {t["id"] for t in listed["items"]}


@pytest.mark.slow
def test_a_trial_that_is_cancelled_ends_and_says_so(
    client: TestClient, done: dict[str, Any]
) -> None:
    trial = _posted(client, done, steps=10_000)[0]
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if client.get(trial["links"]["self"]).json()["state"] == "running":
            break
        time.sleep(0.05)
    assert client.delete(trial["links"]["self"]).json()["status"] == "cancelled"
    while time.monotonic() < end:
        found = client.get(trial["links"]["self"]).json()
        if found["outcome"] is not None:
            break
        time.sleep(0.05)
    assert found["outcome"]["kind"] == "cancelled"
    assert found["status"] == "cancelled"


@pytest.mark.slow
def test_the_steps_of_a_trial_are_seen_while_it_runs_over_http_and_on_its_page(
    client: TestClient, done: dict[str, Any]
) -> None:
    trial = _posted(client, done, steps=10_000)[0]
    found: dict[str, Any] = {"so_far": []}
    end = time.monotonic() + 120
    while time.monotonic() < end and (
        len(found["so_far"]) < 2 or min(r["done"] for r in found["so_far"]) < 30
    ):
        found = client.get(trial["links"]["self"]).json()
        time.sleep(0.05)
    assert found["status"] == "running"
    assert found["ranks"] == []
    assert [r["rank"] for r in found["so_far"]] == [0, 1]
    for rank in found["so_far"]:
        assert len(rank["steps"]) == min(rank["done"], 200)
        assert rank["steps"][-1]["seconds"] > 0
    page = client.get(trial["links"]["page"]).text
    assert "of 10002 steps" in page
    assert page.count("<tr><td>0</td>") == 20
    client.delete(trial["links"]["self"])
    assert ended(client, trial["links"]["self"])["status"] == "cancelled"


def test_what_is_sent_again_with_its_key_is_not_done_twice(
    client: TestClient, done: dict[str, Any]
) -> None:
    headers = {"Idempotency-Key": "again"}
    for url, body, other in (
        (done["links"]["trials"], {"candidates": [1, 2]}, {"candidates": [1], "steps": 3}),
        (done["links"]["campaigns"], {"max_trials": 1}, {"max_trials": 2}),
        (done["links"]["candidates"] + "/1/dry-run", {"stages": [0]}, {"time_limit_s": 5}),
    ):
        first = client.post(url, json=body, headers=headers)
        second = client.post(url, json=body, headers=headers)
        assert (first.status_code, second.status_code) == (202, 202), second.text
        made = [m.json().get("items", [m.json()]) for m in (first, second)]
        assert [m["id"] for m in made[0]] == [m["id"] for m in made[1]]
        assert client.post(url, json=other, headers=headers).status_code == 409
        for one in made[0]:
            client.post(one["links"]["cancel"])


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"candidates": [999]}, "/candidates/0", "there is no candidate 999"),
        ({"candidates": [1, 1]}, "/candidates/1", "twice"),
        ({"candidates": []}, "/candidates", "at least 1"),
        ({"candidates": [1], "executor": "slurm"}, "/executor", "local"),
        ({"candidates": [1], "partition": "gpu"}, "/partition", "no field"),
        ({"candidates": [1], "steps": 0}, "/steps", "greater than or equal to 1"),
        ({}, "/candidates", "required"),
    ],
)
def test_a_bad_request_names_the_field(
    client: TestClient, done: dict[str, Any], body: dict[str, Any], pointer: str, words: str
) -> None:
    answer = client.post(done["links"]["trials"], json=body)
    assert answer.status_code == 422, answer.text
    error = answer.json()["errors"][0]
    assert error["pointer"] == pointer
    assert words in error["detail"]


def test_a_plan_larger_than_the_executor_is_refused_before_launch(client: TestClient) -> None:
    large = TINY | {"cluster": {"preset": "dgx-a100-80g", "nodes": 8}}
    large["training"] = TINY["training"] | {"global_batch": 64}
    large["search"] = TINY["search"] | {"fixed": {"nodes": 8}}
    done = searched(client, large)
    answer = client.post(done["links"]["trials"], json={"candidates": [1, 2]})
    assert answer.status_code == 422
    errors = answer.json()["errors"]
    assert [e["pointer"] for e in errors] == ["/candidates/0", "/candidates/1"]
    assert "the plan needs 64 ranks; the executor has" in errors[0]["detail"]
    assert client.get("/v1/trials", params={"plan_id": done["id"]}).json()["items"] == []


def test_a_missing_library_is_refused_before_launch(
    client: TestClient, done: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trials.preflight.LIBRARIES", ("no_such_library",))
    answer = client.post(done["links"]["trials"], json={"candidates": [1]})
    assert answer.status_code == 422
    assert "lacks no_such_library" in answer.json()["errors"][0]["detail"]


def test_executors_are_listed_with_their_ranks(client: TestClient) -> None:
    items = client.get("/v1/executors").json()["items"]
    assert [place["name"] for place in items] == ["local"]
    assert items[0]["ranks"] >= 1


def test_a_trial_that_is_not_there_is_a_404(client: TestClient) -> None:
    for path in ("/v1/trials/none", "/v1/trials/none/logs"):
        assert client.get(path).status_code == 404
