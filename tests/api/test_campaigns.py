"""Campaigns over HTTP: trials, what they teach, and who uses it."""

from pathlib import Path
from typing import Any

import optuna
import pytest
from fastapi.testclient import TestClient
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.api.samples import TINY, ended, searched

pytest.importorskip("deepspeed")


SURE = {"warmup_steps": 1, "confidence": 1.0, "prune_above": 100.0}
"""Every trial runs to its end, however sure the campaign is and however slow the machine."""


def _post(client: TestClient, plan: dict[str, Any], **body: Any) -> dict[str, Any]:
    answer = client.post(plan["links"]["campaigns"], json=body)
    assert answer.status_code == 202, answer.text
    accepted: dict[str, Any] = answer.json()
    assert answer.headers["location"] == accepted["links"]["self"]
    return accepted


@pytest.mark.slow
def test_a_campaign_learns_and_later_answers_use_it(client_on: TestClient, tmp_path: Path) -> None:
    plan = searched(client_on, TINY)
    assert plan["calibration"] is None
    knobs = {"plan": {"zero_stage": 1, "micro_batch": 2}}
    request = {name: TINY[name] for name in ("model", "cluster", "training")}
    before = client_on.post("/v1/predict", json=request | knobs).json()

    accepted = _post(client_on, plan, max_trials=3, steps=3, **SURE)
    campaign = ended(client_on, accepted["links"]["self"])
    assert campaign["status"] == "succeeded", campaign["error"]
    assert campaign["tried"] == 3
    assert campaign["ended"] == "budget spent"
    assert [t["outcome"] for t in campaign["trials"]] == ["ok", "ok", "ok"]
    assert campaign["best"] in [one["plan"] for one in campaign["ranking"] if one["trials"]]
    assert campaign["calibration"]["trials"] == 3

    listed = client_on.get(campaign["links"]["trials"]).json()["items"]
    assert sorted(t["id"] for t in listed) == [t["trial_id"] for t in campaign["trials"]]
    for tried in campaign["trials"]:
        trial = client_on.get(tried["link"]).json()
        assert trial["campaign_id"] == campaign["id"]
        assert trial["step_seconds"] == tried["measured_seconds"]

    journal = tmp_path / "study.log"
    journal.write_text(client_on.get(campaign["links"]["study"]).text)
    storage = JournalStorage(JournalFileBackend(str(journal)))
    study = optuna.load_study(study_name=campaign["id"], storage=storage)
    measured = [t for t in study.trials if t.user_attrs["source"] == "measured"]
    assert len(measured) == 3
    assert len(study.trials) == len(campaign["ranking"])

    kept = client_on.get("/v1/calibrations").json()["items"]
    assert [k["trials"] for k in kept] == [3]
    assert kept[0]["factors"] == campaign["calibration"]["factors"]

    after = client_on.post("/v1/predict", json=request | knobs).json()
    assert before["calibration"] is None
    assert after["calibration"]["trials"] == 3
    assert after["step"]["seconds"] != before["step"]["seconds"]
    out = client_on.post("/v1/predict?calibrated=false", json=request | knobs).json()
    assert out == before
    again = searched(client_on, TINY)
    assert again["calibration"]["key"] == kept[0]["key"]
    one = client_on.post("/v1/predict", json=request | {"plan": again["result"]["best"]["plan"]})
    assert one.json()["step"]["seconds"] == pytest.approx(again["result"]["best"]["step_seconds"])
    why = client_on.get(again["links"]["explain"], params=again["result"]["best"]["plan"]).json()
    assert why["verdict"] == "is the best"

    assert client_on.delete(f"/v1/calibrations/{kept[0]['key']}").status_code == 204
    assert client_on.post("/v1/predict", json=request | knobs).json() == before


@pytest.mark.slow
def test_campaigns_at_once_on_one_kind_of_cluster_pool_what_they_learn(
    client_on: TestClient,
) -> None:
    plan = searched(client_on, TINY)
    made = [_post(client_on, plan, max_trials=2, steps=2, seed=seed, **SURE) for seed in (0, 1)]
    done = [ended(client_on, campaign["links"]["self"]) for campaign in made]
    assert [c["calibration"]["trials"] for c in done] == [2, 2], done
    kept = client_on.get("/v1/calibrations").json()["items"]
    assert [k["trials"] for k in kept] == [4]
    for name, deviation in kept[0]["deviations"].items():
        assert all(deviation <= c["calibration"]["deviations"][name] + 1e-9 for c in done)


@pytest.fixture(scope="module")
def plan(client: TestClient) -> dict[str, Any]:
    return searched(client, TINY)


@pytest.mark.slow
def test_a_campaign_that_is_cancelled_ends_its_trials(
    client: TestClient, plan: dict[str, Any]
) -> None:
    campaign = _post(client, plan, steps=10_000)
    trials: list[dict[str, Any]] = []
    while not trials:
        trials = client.get(campaign["links"]["trials"]).json()["items"]
    assert client.delete(campaign["links"]["self"]).json()["status"] == "cancelled"
    assert [ended(client, t["links"]["self"])["status"] for t in trials] == ["cancelled"]
    assert client.post(campaign["links"]["cancel"]).status_code == 200


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"max_trials": 0}, "/max_trials"),
        ({"sampler": "best"}, "/sampler"),
        ({"executor": "slurm"}, "/executor"),
        ({"account": "mine"}, "/account"),
        ({"confidence": 2}, "/confidence"),
    ],
)
def test_a_bad_request_names_the_field(
    client: TestClient, plan: dict[str, Any], body: dict[str, Any], pointer: str
) -> None:
    answer = client.post(plan["links"]["campaigns"], json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_a_missing_library_is_refused_before_the_first_trial(
    client: TestClient, plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trials.preflight.LIBRARIES", ("no_such_library",))
    answer = client.post(plan["links"]["campaigns"], json={})
    assert answer.status_code == 422
    assert "lacks no_such_library" in answer.json()["errors"][0]["detail"]


def test_what_is_not_there_is_a_404(client: TestClient) -> None:
    for path in ("/v1/campaigns/none", "/v1/calibrations/none"):
        assert client.get(path).status_code == 404
    assert client.delete("/v1/calibrations/none").status_code == 404


def test_a_campaign_that_can_try_nothing_ends_at_once_and_says_why(client: TestClient) -> None:
    cluster = TINY["cluster"] | {"nodes": 2}
    search = TINY["search"] | {"fixed": {"nodes": 2}}
    plan = searched(client, TINY | {"cluster": cluster, "search": search})
    accepted = _post(client, plan, proxies=False)
    campaign = ended(client, accepted["links"]["self"])
    assert campaign["status"] == "succeeded", campaign["error"]
    assert campaign["ended"] == "no trial can be run"
    assert campaign["trials"] == []
    assert "they take 4 ranks or more, the executor has 2" in campaign["notes"][-1]
