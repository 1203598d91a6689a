"""Rows that a job works on, on their way from queued to one of three ends."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from api.store.records import OPEN, JobRecord, Status
from api.store.tables import IdempotencyRow, JobRow

Row = TypeVar("Row", bound=JobRow)
Record = TypeVar("Record", bound=JobRecord)

Enqueue = Callable[[Session, str], None]
"""Puts the job of a new row into its queue, within the transaction that stores the row."""


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(UTC)


class IdempotencyConflict(Exception):  # noqa: N818 - a conflict is what HTTP calls it
    """An Idempotency-Key that was used before, with another body."""


@dataclass(frozen=True)
class Once:
    """A request that may be sent again."""

    route: str
    key: str
    """The client's own, for this route."""
    digest: str
    """Of what it sent."""


class JobTable(Generic[Row, Record]):
    """One table of such rows.

    A status only moves forward: queued, running, and one of the final three. Every move names
    the status that it starts from, so of two workers that finish the same job (one was believed
    dead) one result is kept.
    """

    def __init__(
        self, session: sessionmaker[Session], row: type[Row], record: type[Record]
    ) -> None:
        self.session = session
        self.row = row
        self._type = record
        self._names = tuple(f.name for f in fields(record))

    def record(self, row: Row) -> Record:
        """The row as plain values."""
        return self._type(**{name: getattr(row, name) for name in self._names})

    def add(self, job_id: str, enqueue: Enqueue, **values: Any) -> Record:
        """Stores a row and queues its job, both or neither; a row that is there already stays."""
        return self._add(job_id, enqueue, None, values)[0]

    def add_once(
        self, job_id: str, enqueue: Enqueue, once: Once | None, **values: Any
    ) -> tuple[Record, bool]:
        """The same for a request that may be sent again; also whether it was there already.

        Raises IdempotencyConflict for a key that came with another digest before.
        """
        try:
            return self._add(job_id, enqueue, once, values)
        except sa.exc.IntegrityError:
            if once is None:
                raise
            # Another request with the same key won the race: this time it will be found.
            return self._add(job_id, enqueue, once, values)

    def _add(
        self, job_id: str, enqueue: Enqueue, once: Once | None, values: dict[str, Any]
    ) -> tuple[Record, bool]:
        with self.session.begin() as session:
            first = None if once is None else session.get(IdempotencyRow, (once.route, once.key))
            if first is not None and once is not None and first.body_sha256 != once.digest:
                raise IdempotencyConflict(once.key)
            known = session.get(self.row, job_id if first is None else first.resource_id)
            if known is not None:
                return self.record(known), True
            if once is not None:
                session.add(
                    IdempotencyRow(
                        route=once.route,
                        key=once.key,
                        body_sha256=once.digest,
                        resource_id=job_id,
                        created_at=now(),
                    )
                )
            row = self.row(id=job_id, status="queued", created_at=now(), **values)
            session.add(row)
            session.flush()
            enqueue(session, job_id)
            return self.record(row), False

    def get(self, job_id: str) -> Record | None:
        """The row of an id."""
        with self.session() as session:
            row = session.get(self.row, job_id)
            return None if row is None else self.record(row)

    def page(self, limit: int, before: str | None = None, **equal: Any) -> Sequence[Record]:
        """The newest first; `before` is the id that the page before ended with.

        equal: columns that must have a value; None leaves a column free.
        """
        select = sa.select(self.row).order_by(self.row.id.desc()).limit(limit)
        if before is not None:
            select = select.where(self.row.id < before)
        for name, value in equal.items():
            if value is not None:
                select = select.where(getattr(self.row, name) == value)
        with self.session() as session:
            return [self.record(row) for row in session.scalars(select)]

    def open(self, older_than_s: float) -> Sequence[str]:
        """Ids of rows that are not done and were made some time ago."""
        limit = now() - timedelta(seconds=older_than_s)
        select = sa.select(self.row.id).where(
            self.row.status.in_(OPEN), self.row.created_at < limit
        )
        with self.session() as session:
            return session.scalars(select).all()

    def move(self, session: Session, job_id: str, before: Iterable[Status], **values: Any) -> bool:
        """Writes values where the status is one of these; False where it is not."""
        update = (
            sa.update(self.row)
            .where(self.row.id == job_id, self.row.status.in_(tuple(before)))
            .values(**values)
        )
        result = cast("sa.CursorResult[Any]", session.execute(update))
        return result.rowcount == 1

    def start(self, job_id: str) -> bool:
        """To running; True where it is running now, which a repeated start finds it to be."""
        with self.session.begin() as session:
            row = session.get(self.row, job_id)
            if row is None:
                return False
            first = row.started_at or now()
            return self.move(session, job_id, OPEN, status="running", started_at=first)

    def report(self, job_id: str, **values: Any) -> bool:
        """Keeps how far the job is; False tells it to stop, since nobody waits for it."""
        with self.session.begin() as session:
            return self.move(session, job_id, ("running",), **values)

    def succeed(self, job_id: str, **values: Any) -> bool:
        """To succeeded, with the result; False where it is done already."""
        with self.session.begin() as session:
            return self.move(
                session, job_id, ("running",), status="succeeded", finished_at=now(), **values
            )

    def fail(self, job_id: str, error: dict[str, Any]) -> bool:
        """To failed; False where it is done already."""
        with self.session.begin() as session:
            return self.move(session, job_id, OPEN, status="failed", error=error, finished_at=now())

    def cancel(self, job_id: str) -> bool:
        """To cancelled; False where it is done already."""
        with self.session.begin() as session:
            return self.move(session, job_id, OPEN, status="cancelled", finished_at=now())

    def amend(self, job_id: str, **values: Any) -> bool:
        """Adds what is known of a job that was cancelled: how its last act ended."""
        with self.session.begin() as session:
            return self.move(session, job_id, ("cancelled",), **values)
