"""The service is killed in the middle of a search: nothing is lost, and one result is kept."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from api.store import create_engine
from api.store.tables import CandidateRow
from tests.api.samples import SHORTEST, small
from tests.api.server import Server, children, running

pytestmark = pytest.mark.slow

LONG: dict[str, Any] = {
    "model": "gpt-3-175b",
    "cluster": {"preset": "dgx-a100-80g", "nodes": 384},
    "training": {"seq_len": 2048, "global_batch": 1536},
    "search": {
        "keep": 30,
        "software": ["deepspeed", "megatron_deepspeed", "megatron", "fsdp"],
        "allow": {"compile": True, "tp_across_nodes": True, "compression": True},
    },
}
"""A search of several seconds."""


def _midway(server: Server, plan_id: str) -> None:
    """Waits until the search has counted some plans."""
    server.wait(lambda: (server.plan(plan_id)["progress"] or {}).get("evaluated"), 60)
    assert server.plan(plan_id)["status"] == "running"


def _kept(url: str, plan_id: str) -> int:
    engine = create_engine(url)
    with engine.connect() as connection:
        count = connection.scalar(
            sa.select(sa.func.count()).where(CandidateRow.plan_request_id == plan_id)
        )
    engine.dispose()
    return int(count or 0)


def test_a_killed_service_finishes_its_searches_after_a_restart(
    database_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with Server(log, MESHWRIGHT_DATABASE_URL=database_url) as server:
        long = server.post(LONG)
        queued = [server.post(small(keep=n)) for n in (3, 4)]
        _midway(server, long)
        workers = children(server.process.pid)
        server.kill()
    assert workers
    end = time.monotonic() + 10
    while any(running(pid) for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(running(pid) for pid in workers)
    assert _kept(database_url, long) == 0

    with Server(log, MESHWRIGHT_DATABASE_URL=database_url) as server:
        done = server.finished(long)
        assert done["status"] == "succeeded", done["error"]
        assert done["result"]["kept"] == 30
        assert _kept(database_url, long) == 30
        for plan_id, kept in zip(queued, (3, 4), strict=True):
            assert server.finished(plan_id)["result"]["kept"] == kept
            assert _kept(database_url, plan_id) == kept


def _owner(url: str, plan_id: str, servers: list[Server]) -> Server:
    """The service that runs a search: its process id is part of its executor id."""
    engine = create_engine(url)
    schema = "" if engine.dialect.name == "sqlite" else "dbos."
    query = f"SELECT executor_id FROM {schema}workflow_status WHERE workflow_uuid = :id"
    with engine.connect() as connection:
        executor = str(connection.scalar(sa.text(query), {"id": plan_id}))
    engine.dispose()
    return next(s for s in servers if f"-{s.process.pid}-" in executor)


def test_another_process_takes_over_while_the_dead_one_stays_away(
    database_url: str, tmp_path: Path
) -> None:
    environment = {"MESHWRIGHT_DATABASE_URL": database_url, "MESHWRIGHT_LEASE_SECONDS": "2"}
    with (
        Server(tmp_path / "first", **environment) as first,
        Server(tmp_path / "second", **environment) as second,
    ):
        long = first.post(LONG)
        _midway(first, long)
        owner = _owner(database_url, long, [first, second])
        other = second if owner is first else first
        owner.kill()
        done = other.finished(long)
        assert done["status"] == "succeeded", done["error"]
        assert _owner(database_url, long, [first, second]) is other
    assert _kept(database_url, long) == 30


def test_a_service_that_is_asked_to_stop_leaves_its_search_to_the_next(
    sqlite_url: str, tmp_path: Path
) -> None:
    with Server(tmp_path / "log", MESHWRIGHT_DATABASE_URL=sqlite_url) as server:
        long = server.post(LONG)
        _midway(server, long)
    with Server(tmp_path / "log", MESHWRIGHT_DATABASE_URL=sqlite_url) as server:
        assert server.finished(long)["status"] == "succeeded"
    assert _kept(sqlite_url, long) == 30


def test_the_service_answers_while_it_searches_and_stops_a_search_that_is_cancelled(
    sqlite_url: str, tmp_path: Path
) -> None:
    with Server(tmp_path / "log", MESHWRIGHT_DATABASE_URL=sqlite_url) as server:
        long = server.post(LONG)
        _midway(server, long)
        waits = []
        for _ in range(20):
            started = time.monotonic()
            server.http.get("/v1/plans/none")
            waits.append(time.monotonic() - started)
        assert server.plan(long)["status"] == "running"
        assert sorted(waits)[10] < 0.25
        answer = server.http.post(f"/v1/plans/{long}/cancel")
        assert answer.status_code == 200
        assert answer.json()["status"] == "cancelled"
        assert server.http.post(f"/v1/plans/{long}/cancel").status_code == 200
        after = server.finished(server.post(SHORTEST), 30)
        assert after["status"] == "succeeded"
        assert server.plan(long)["status"] == "cancelled"
    assert _kept(sqlite_url, long) == 0


def test_a_search_process_that_is_killed_fails_its_search_alone(
    sqlite_url: str, tmp_path: Path
) -> None:
    with Server(tmp_path / "log", MESHWRIGHT_DATABASE_URL=sqlite_url) as server:
        long = server.post(LONG)
        _midway(server, long)
        for pid in children(server.process.pid):
            os.kill(pid, 9)
        failed = server.finished(long)
        assert failed["status"] == "failed"
        assert "died" in failed["error"]["title"]
        assert server.finished(server.post(SHORTEST))["status"] == "succeeded"
