"""The store: every read and write of requests and candidates, each in one transaction."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from api.store import candidates
from api.store.candidates import CandidatePage, CandidateQuery
from api.store.ids import new_id
from api.store.records import OPEN, CandidateRecord, NewCandidate, PlanRecord, PlanStatus
from api.store.tables import CandidateRow, IdempotencyRow, PlanRequestRow, PredictionRow

Enqueue = Callable[[Session, str], None]
"""Puts the job of a new request into its queue, within the transaction that stores the request."""

IDEMPOTENCY_DAYS = 7


class IdempotencyConflict(Exception):  # noqa: N818 - a conflict is what HTTP calls it
    """An Idempotency-Key that was used before, with another body."""


def _now() -> datetime:
    return datetime.now(UTC)


def _record(row: PlanRequestRow) -> PlanRecord:
    return PlanRecord(
        id=row.id,
        status=cast(PlanStatus, row.status),
        request=row.request,
        summary=row.summary,
        progress=row.progress,
        result=row.result,
        error=row.error,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


class Store:
    """Requests, candidates and predictions in one database.

    A request's status only moves forward: queued, running, and one of the final three. Every
    move names the status that it starts from, so of two workers that finish the same search
    (one was believed dead) one result is kept.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.session = sessionmaker(engine, expire_on_commit=False)

    def ping(self) -> None:
        """Raises SQLAlchemyError where the database does not answer or has no schema."""
        with self.session() as session:
            session.execute(sa.select(PlanRequestRow.id).limit(1))

    def add_plan(
        self,
        request: dict[str, Any],
        summary: dict[str, Any],
        enqueue: Enqueue,
        idempotency: tuple[str, str] | None = None,
    ) -> tuple[PlanRecord, bool]:
        """Stores a request and queues its search, both or neither.

        idempotency: the client's key, and a digest of what it sent. Returns the request, and
        whether it was there already; raises IdempotencyConflict for a key with another digest.
        """
        try:
            return self._add_plan(request, summary, enqueue, idempotency)
        except sa.exc.IntegrityError:
            if idempotency is None:
                raise
            # Another request with the same key won the race: this time it will be found.
            return self._add_plan(request, summary, enqueue, idempotency)

    def _add_plan(
        self,
        request: dict[str, Any],
        summary: dict[str, Any],
        enqueue: Enqueue,
        idempotency: tuple[str, str] | None,
    ) -> tuple[PlanRecord, bool]:
        with self.session.begin() as session:
            if idempotency is not None:
                known = session.get(IdempotencyRow, ("plans", idempotency[0]))
                if known is not None:
                    if known.body_sha256 != idempotency[1]:
                        raise IdempotencyConflict(idempotency[0])
                    return _record(session.get_one(PlanRequestRow, known.resource_id)), True
            row = PlanRequestRow(
                id=new_id(), status="queued", request=request, summary=summary, created_at=_now()
            )
            session.add(row)
            if idempotency is not None:
                session.add(
                    IdempotencyRow(
                        route="plans",
                        key=idempotency[0],
                        body_sha256=idempotency[1],
                        resource_id=row.id,
                        created_at=row.created_at,
                    )
                )
            session.flush()
            enqueue(session, row.id)
            return _record(row), False

    def plan(self, plan_id: str) -> PlanRecord | None:
        """The request of an id."""
        with self.session() as session:
            row = session.get(PlanRequestRow, plan_id)
            return None if row is None else _record(row)

    def plans(
        self, limit: int, before: str | None = None, status: PlanStatus | None = None
    ) -> Sequence[PlanRecord]:
        """The newest requests first; `before` is the id that the page before ended with."""
        select = sa.select(PlanRequestRow).order_by(PlanRequestRow.id.desc()).limit(limit)
        if before is not None:
            select = select.where(PlanRequestRow.id < before)
        if status is not None:
            select = select.where(PlanRequestRow.status == status)
        with self.session() as session:
            return [_record(row) for row in session.scalars(select)]

    def open_plans(self, older_than_s: float) -> Sequence[str]:
        """Ids of requests that are not done and were made some time ago."""
        limit = _now() - timedelta(seconds=older_than_s)
        select = sa.select(PlanRequestRow.id).where(
            PlanRequestRow.status.in_(OPEN), PlanRequestRow.created_at < limit
        )
        with self.session() as session:
            return session.scalars(select).all()

    def _move(self, session: Session, plan_id: str, before: Iterable[str], **values: Any) -> bool:
        update = (
            sa.update(PlanRequestRow)
            .where(PlanRequestRow.id == plan_id, PlanRequestRow.status.in_(tuple(before)))
            .values(**values)
        )
        result = cast("sa.CursorResult[Any]", session.execute(update))
        return result.rowcount == 1

    def start(self, plan_id: str) -> bool:
        """To running; True where it is running now, which a repeated start finds it to be."""
        with self.session.begin() as session:
            row = session.get(PlanRequestRow, plan_id)
            if row is None:
                return False
            first = row.started_at or _now()
            return self._move(session, plan_id, OPEN, status="running", started_at=first)

    def report(self, plan_id: str, progress: dict[str, Any]) -> bool:
        """Keeps how far the search is; False tells it to stop, since nobody waits for it."""
        with self.session.begin() as session:
            return self._move(session, plan_id, ("running",), progress=progress)

    def succeed(
        self,
        plan_id: str,
        result: dict[str, Any],
        found: Iterable[NewCandidate],
        progress: dict[str, Any] | None = None,
    ) -> bool:
        """Keeps the result and all candidates; False where the request is done already."""
        with self.session.begin() as session:
            moved = self._move(
                session,
                plan_id,
                ("running",),
                status="succeeded",
                progress=progress,
                result=result,
                finished_at=_now(),
            )
            if moved:
                session.add_all(
                    CandidateRow(
                        plan_request_id=plan_id,
                        rank=one.rank,
                        plan=one.plan,
                        prediction=PredictionRow(**asdict(one.prediction)),
                    )
                    for one in found
                )
            return moved

    def fail(self, plan_id: str, error: dict[str, Any]) -> bool:
        """To failed; False where the request is done already."""
        with self.session.begin() as session:
            return self._move(
                session, plan_id, OPEN, status="failed", error=error, finished_at=_now()
            )

    def cancel(self, plan_id: str) -> bool:
        """To cancelled; False where the request is done already."""
        with self.session.begin() as session:
            return self._move(session, plan_id, OPEN, status="cancelled", finished_at=_now())

    def candidates(self, plan_id: str, query: CandidateQuery) -> CandidatePage:
        """One page of a request's candidates."""
        with self.session() as session:
            return candidates.find(session, plan_id, query)

    def candidate(self, plan_id: str, rank: int) -> CandidateRecord | None:
        """The candidate of a rank."""
        with self.session() as session:
            return candidates.one(session, plan_id, rank)

    def forget_idempotency_keys(self) -> None:
        """Drops keys that no client still retries with."""
        limit = _now() - timedelta(days=IDEMPOTENCY_DAYS)
        with self.session.begin() as session:
            session.execute(sa.delete(IdempotencyRow).where(IdempotencyRow.created_at < limit))
