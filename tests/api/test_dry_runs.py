"""Dry runs over HTTP: the exported config in the real engine."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.samples import TINY, ended, searched

pytest.importorskip("deepspeed")


@pytest.fixture(scope="module")
def done(client: TestClient) -> dict[str, Any]:
    return searched(client, TINY)


def _url(done: dict[str, Any], rank: int = 1) -> str:
    return f"{done['links']['candidates']}/{rank}/dry-run"


@pytest.mark.slow
def test_a_candidate_is_run_in_the_real_engine(client: TestClient, done: dict[str, Any]) -> None:
    one = client.get(done["links"]["candidates"] + "/1").json()
    answer = client.post(one["links"]["dry_run"])
    assert answer.status_code == 202, answer.text
    accepted = answer.json()
    assert answer.headers["location"] == accepted["links"]["self"]
    assert accepted["candidate"] == 1
    found = ended(client, accepted["links"]["self"])
    assert found["status"] == "succeeded", found["error"]
    result = found["result"]
    assert result["peak_allocated_gib"] > 0
    assert result["predicted"]["peak_allocated_gib"] > 0
    assert result["timeline"]
    listed = client.get("/v1/dry-runs", params={"plan_id": done["id"]}).json()["items"]
    assert accepted["id"] in [d["id"] for d in listed]
    assert client.post(found["links"]["cancel"]).status_code == 409


def test_a_dry_run_can_be_cancelled(client: TestClient, done: dict[str, Any]) -> None:
    accepted = client.post(_url(done)).json()
    cancelled = client.delete(accepted["links"]["self"])
    assert cancelled.status_code == 200
    assert cancelled.json()["status"] == "cancelled"
    assert client.post(accepted["links"]["cancel"]).status_code == 200


@pytest.mark.slow
def test_a_dry_run_that_takes_too_long_fails_with_that_reason(
    client: TestClient, done: dict[str, Any]
) -> None:
    accepted = client.post(_url(done), json={"time_limit_s": 0.1}).json()
    failed = ended(client, accepted["links"]["self"])
    assert failed["status"] == "failed"
    assert failed["error"]["kind"] == "timeout"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"stages": [1]}, "/stages/0"),
        ({"stages": []}, "/stages"),
        ({"time_limit_s": 0}, "/time_limit_s"),
        ({"stage": [0]}, "/stage"),
    ],
)
def test_a_bad_request_names_the_field(
    client: TestClient, done: dict[str, Any], body: dict[str, Any], pointer: str
) -> None:
    answer = client.post(_url(done), json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_a_service_without_the_engine_says_so(
    client: TestClient, done: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trials.preflight.LIBRARIES", ("no_such_library",))
    answer = client.post(_url(done))
    assert answer.status_code == 409
    assert "'trials' extra" in answer.json()["detail"]


def test_what_is_not_there_is_a_404(client: TestClient, done: dict[str, Any]) -> None:
    assert client.post(_url(done, 999)).status_code == 404
    assert client.get("/v1/dry-runs/none").status_code == 404
