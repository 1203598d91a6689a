"""Processes that say that they live, and what is done with those that do not."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from api.jobs.lease import Lease, executor_id, machine
from api.store import Store
from api.store.columns import epoch_now
from api.store.tables import WorkerRow


def _nothing() -> None:
    """No housekeeping."""


@pytest.fixture
def lease(store: Store) -> Iterator[Lease]:
    lease = Lease(store.engine, executor_id(), 10.0, _nothing)
    lease.beat()
    yield lease
    lease.stop()


def _add(lease: Lease, name: str, age: float, pid: int, where: str, dead: bool = False) -> None:
    with lease.engine.begin() as connection:
        connection.execute(
            sa.insert(WorkerRow).values(
                id=name, machine=where, pid=pid, seen=epoch_now() - age, dead=dead
            )
        )


def _gone() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_every_process_has_its_own_id() -> None:
    assert executor_id() != executor_id()


def test_one_that_was_seen_lately_lives_and_one_that_was_not_is_silent(lease: Lease) -> None:
    _add(lease, "fresh", 1, 1, "elsewhere")
    _add(lease, "stale", 11, 1, "elsewhere")
    assert lease.silent() == ["stale"]


def test_one_of_this_machine_whose_process_is_gone_is_silent_at_once(lease: Lease) -> None:
    _add(lease, "gone", 0, _gone(), machine())
    _add(lease, "there", 0, os.getppid(), machine())
    _add(lease, "elsewhere", 0, _gone(), "elsewhere")
    assert lease.silent() == ["gone"]


def test_one_that_is_marked_dead_is_not_looked_at_again_until_it_beats(lease: Lease) -> None:
    _add(lease, "dead", 100, 1, "elsewhere", dead=True)
    assert lease.silent() == []
    risen = Lease(lease.engine, "dead", 10.0, _nothing)
    risen.beat()
    with lease.engine.connect() as connection:
        row = connection.execute(sa.select(WorkerRow).where(WorkerRow.id == "dead")).one()
    assert row.dead is False


def test_one_that_ends_in_order_is_silent_at_once(lease: Lease) -> None:
    other = Lease(lease.engine, "other", 10.0, _nothing)
    other.beat()
    assert lease.silent() == []
    other.forget()
    assert lease.silent() == ["other"]


def test_the_dead_of_yesterday_are_dropped(lease: Lease) -> None:
    _add(lease, "today", 100, 1, "elsewhere", dead=True)
    _add(lease, "yesterday", 90_000, 1, "elsewhere", dead=True)
    _add(lease, "silent", 90_000, 1, "elsewhere")
    lease.forget_the_dead()
    with lease.engine.connect() as connection:
        left = set(connection.scalars(sa.select(WorkerRow.id)))
    assert left == {lease.executor, "today", "silent"}
