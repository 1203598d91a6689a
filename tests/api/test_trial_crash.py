"""The service is killed while a trial runs on this machine: the next one takes the trial over."""

import json
from pathlib import Path

import pytest

from tests.api.samples import TINY
from tests.api.server import Server

pytestmark = pytest.mark.slow

pytest.importorskip("deepspeed")


def _environment(database_url: str, tmp_path: Path) -> dict[str, str]:
    """Of a service that runs trials of two ranks here."""
    return {
        "MESHWRIGHT_DATABASE_URL": database_url,
        "MESHWRIGHT_VAR": str(tmp_path / "var"),
        "MESHWRIGHT_LOCAL_RANKS": "2",
    }


def test_a_killed_service_adopts_its_trial_instead_of_starting_it_again(
    database_url: str, tmp_path: Path
) -> None:
    environment = _environment(database_url, tmp_path)
    body = {"candidates": [1], "steps": 300, "warmup_steps": 1}
    with Server(tmp_path / "log", **environment) as server:
        plan = server.post(TINY)
        assert server.finished(plan)["status"] == "succeeded"
        answer = server.http.post(f"/v1/plans/{plan}/trials", json=body)
        assert answer.status_code == 202, answer.text
        url = answer.json()["items"][0]["links"]["self"]
        folder = tmp_path / "var" / "trials" / answer.json()["items"][0]["id"]
        server.wait(lambda: server.http.get(url).json()["state"] == "running", 180)
        supervisor = (folder / "supervisor.pid").read_text()
        server.kill()
    assert not (folder / "result.json").exists()

    with Server(tmp_path / "log", **environment) as server:
        server.wait(lambda: server.http.get(url).json()["status"] != "running", 240)
        trial = server.http.get(url).json()
    assert trial["status"] == "succeeded", trial["error"]
    assert trial["outcome"]["kind"] == "ok"
    assert [len(rank["steps"]) for rank in trial["ranks"]] == [300, 300]
    assert (folder / "supervisor.pid").read_text() == supervisor
    assert json.loads((folder / "result.json").read_text())["trial_id"] == trial["id"]


def test_an_adopted_trial_holds_its_slot_before_those_that_waited(
    database_url: str, tmp_path: Path
) -> None:
    environment = _environment(database_url, tmp_path)
    long, short = {"steps": 400, "warmup_steps": 1}, {"steps": 1, "warmup_steps": 0}
    with Server(tmp_path / "log", **environment) as server:
        plan = server.post(TINY)
        assert server.finished(plan)["status"] == "succeeded"
        posted = [
            server.http.post(f"/v1/plans/{plan}/trials", json={"candidates": [1], **options})
            for options in (long, short)
        ]
        first, second = (answer.json()["items"][0]["links"]["self"] for answer in posted)
        server.wait(lambda: server.http.get(first).json()["state"] == "running", 180)
        server.kill()

    together = False
    with Server(tmp_path / "log", **environment) as server:

        def done() -> bool:
            nonlocal together
            later = server.http.get(second).json()
            earlier = server.http.get(first).json()
            together |= later["status"] == "running" and earlier["status"] == "running"
            return bool(later["status"] not in {"queued", "running"})

        server.wait(done, 240)
        ended = [server.http.get(url).json() for url in (first, second)]
    assert [trial["status"] for trial in ended] == ["succeeded", "succeeded"]
    assert not together
    assert ended[0]["finished_at"] <= ended[1]["started_at"]
