"""Takes over the jobs of processes that died.

The job engine recovers only jobs of the same executor id, and two processes with one id would
take each other's jobs. So each process has its own id and says in the database that it lives;
whoever finds another one silent resumes its jobs and then marks it dead.
"""

import itertools
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa
from dbos import DBOSClient

from api.store.columns import epoch_now
from api.store.tables import WorkerRow

log = logging.getLogger(__name__)


def machine() -> str:
    """Names the process table that this process counts in: a boot of a machine or container."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    return f"{socket.gethostname()}/{uuid.getnode()}"


def executor_id() -> str:
    """A new id, never used before."""
    return f"{socket.gethostname()[:64]}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Lease(threading.Thread):
    """Says that this process lives, and looks for those that do not."""

    def __init__(
        self,
        engine: sa.Engine,
        executor: str,
        ttl_seconds: float,
        housekeeping: Callable[[], None],
        client: DBOSClient | None = None,
    ) -> None:
        super().__init__(daemon=True, name="lease")
        self.engine = engine
        self.executor = executor
        self.ttl_seconds = ttl_seconds
        self.housekeeping = housekeeping
        self.client = client
        """Talks to the job engine; without one nothing is taken over."""
        self.machine = machine()
        self._ended = threading.Event()

    def beat(self) -> None:
        """Writes that this process lives; one that was declared dead by mistake lives again."""
        with self.engine.begin() as connection:
            alive = connection.execute(
                sa.update(WorkerRow)
                .where(WorkerRow.id == self.executor)
                .values(seen=epoch_now(), dead=False)
            )
            if alive.rowcount == 0:
                connection.execute(
                    sa.insert(WorkerRow).values(
                        id=self.executor,
                        machine=self.machine,
                        pid=os.getpid(),
                        seen=epoch_now(),
                        dead=False,
                    )
                )

    def silent(self) -> list[str]:
        """Executors that were not seen for the lease's length, or whose process is gone."""
        with self.engine.connect() as connection:
            rows = connection.execute(
                sa.select(
                    WorkerRow.id,
                    WorkerRow.machine,
                    WorkerRow.pid,
                    (epoch_now() - WorkerRow.seen).label("age"),
                ).where(WorkerRow.dead.is_(False), WorkerRow.id != self.executor)
            ).all()
        return [
            row.id
            for row in rows
            if row.age > self.ttl_seconds or (row.machine == self.machine and not _runs(row.pid))
        ]

    def take_over(self) -> int:
        """Resumes the jobs of dead processes; returns how many.

        Marks a process dead only after its jobs are resumed: a crash in between repeats the
        take-over instead of losing it. Jobs go back to their own queue, so that its limits hold.
        """
        resumed = 0
        if self.client is None:
            return resumed
        for dead in self.silent():
            left = self.client.list_workflows(
                status="PENDING", executor_id=dead, load_input=False, load_output=False
            )
            by_queue = sorted(left, key=lambda w: w.queue_name or "")
            for queue_name, group in itertools.groupby(by_queue, key=lambda w: w.queue_name):
                ids = [w.workflow_id for w in group]
                self.client.resume_workflows(ids, queue_name=queue_name)
                resumed += len(ids)
            with self.engine.begin() as connection:
                connection.execute(
                    sa.update(WorkerRow).where(WorkerRow.id == dead).values(dead=True)
                )
            log.info("took over %d jobs of %s", resumed, dead)
        return resumed

    def forget_the_dead(self) -> None:
        """Drops processes that have been dead for a day."""
        with self.engine.begin() as connection:
            connection.execute(
                sa.delete(WorkerRow).where(
                    WorkerRow.dead.is_(True), epoch_now() - WorkerRow.seen > 86_400
                )
            )

    def forget(self) -> None:
        """This process ends in order: nothing is left to take over but what it says itself."""
        with self.engine.begin() as connection:
            connection.execute(
                sa.update(WorkerRow).where(WorkerRow.id == self.executor).values(seen=0.0)
            )

    def run(self) -> None:
        """Beats until stopped. A database that does not answer is asked again."""
        while not self._ended.wait(self.ttl_seconds / 4):
            try:
                self.beat()
                self.take_over()
                self.housekeeping()
            except Exception:  # the thread must outlive any fault of the database
                log.exception("lease")

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()
        if self.is_alive():
            self.join(timeout=10)
