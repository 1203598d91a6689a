"""The pool of search processes."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.jobs.pool import Abandoned, ShuttingDown, WorkerDied, WorkerPool
from tests.api.samples import small
from tests.api.server import children, running
from tests.api.test_crash import LONG


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(1)
    yield pool
    pool.stop()


def _always() -> bool:
    return True


def _run(pool: WorkerPool, request: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pool.run({"request": request}, _always))


def test_a_search_answers_with_its_candidates_and_a_result(pool: WorkerPool) -> None:
    messages = _run(pool, small(keep=3))
    kinds = [m["kind"] for m in messages if m["kind"] != "progress"]
    assert kinds == ["candidate"] * 3 + ["done"]
    assert messages[-1]["result"]["kept"] == 3


def test_the_process_is_used_again(pool: WorkerPool) -> None:
    _run(pool, small(keep=1))
    before = _workers()
    _run(pool, small(keep=1))
    assert _workers() == before


def test_a_request_that_is_no_longer_valid_is_refused(pool: WorkerPool) -> None:
    last = _run(pool, {"model": "llama-2-13b"})[-1]
    assert last["kind"] == "refused"
    assert last["error"]["errors"][0]["pointer"]


def _abandon(pool: WorkerPool) -> None:
    for message in pool.run({"request": LONG}, _always):
        if message["kind"] == "progress":
            raise Abandoned


def test_a_search_that_is_abandoned_midway_leaves_the_pool_usable(pool: WorkerPool) -> None:
    with pytest.raises(Abandoned):
        _abandon(pool)
    assert _run(pool, small(keep=1))[-1]["kind"] == "done"


def test_a_silent_search_that_nobody_wants_is_abandoned(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.jobs.pool.POLL_SECONDS", 0.001)
    with pytest.raises(Abandoned):
        list(pool.run({"request": LONG}, lambda: False))
    assert _run(pool, small(keep=1))[-1]["kind"] == "done"


def _workers() -> list[int]:
    name = b"api.search_process"
    return [p for p in children(os.getpid()) if name in Path(f"/proc/{p}/cmdline").read_bytes()]


def _kill(pool: WorkerPool) -> None:
    for _ in pool.run({"request": LONG}, _always):
        for pid in _workers():
            os.kill(pid, signal.SIGKILL)


def test_a_process_that_is_killed_is_told_and_replaced(pool: WorkerPool) -> None:
    with pytest.raises(WorkerDied):
        _kill(pool)
    assert _run(pool, small(keep=1))[-1]["kind"] == "done"


def test_stopping_ends_the_processes_and_tells_who_waits() -> None:
    pool = WorkerPool(1)
    caught: list[BaseException] = []
    started = threading.Event()

    def search() -> None:
        try:
            for _ in pool.run({"request": LONG}, _always):
                started.set()
        except ShuttingDown as error:
            caught.append(error)

    before = set(_workers())
    thread = threading.Thread(target=search)
    thread.start()
    assert started.wait(60)
    mine = set(_workers()) - before
    pool.stop()
    thread.join(10)
    assert len(caught) == 1
    assert mine
    assert not any(running(pid) for pid in mine)
