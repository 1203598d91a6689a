"""The store: every read and write of requests and candidates, each in one transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker

from api.store import candidates
from api.store.calibrations import Calibrations, Change
from api.store.candidates import CandidatePage, CandidateQuery
from api.store.ids import new_id
from api.store.jobs import Enqueue, JobTable, Once, now
from api.store.records import (
    CampaignRecord,
    CandidateRecord,
    DryRunRecord,
    NewCandidate,
    PlanRecord,
    Status,
    TrialRecord,
)
from api.store.tables import (
    CampaignRow,
    CandidateRow,
    DryRunRow,
    IdempotencyRow,
    PlanRequestRow,
    PredictionRow,
    TrialRow,
)

IDEMPOTENCY_DAYS = 7

Round = Literal["kept", "overtaken", "done"]
"""What became of a round of a campaign: overtaken by another process, or of a campaign that is
done."""


class Store:
    """Requests, candidates, dry runs, trials and campaigns in one database."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.session = sessionmaker(engine, expire_on_commit=False)
        self.requests = JobTable(self.session, PlanRequestRow, PlanRecord)
        self.dry_runs = JobTable(self.session, DryRunRow, DryRunRecord)
        self.trials = JobTable(self.session, TrialRow, TrialRecord)
        self.campaigns = JobTable(self.session, CampaignRow, CampaignRecord)
        self.calibrations = Calibrations(self.session)

    def ping(self) -> None:
        """Raises SQLAlchemyError where the database does not answer or has no schema."""
        with self.session() as session:
            session.execute(sa.select(PlanRequestRow.id).limit(1))

    def add_plan(
        self,
        request: dict[str, Any],
        summary: dict[str, Any],
        enqueue: Enqueue,
        once: Once | None = None,
        calibration: dict[str, Any] | None = None,
    ) -> tuple[PlanRecord, bool]:
        """Stores a request and queues its search, both or neither.

        once: where the client may send it again. calibration: what the search
        shall use of earlier trials. Returns the request, and
        whether it was there already; raises IdempotencyConflict for a key with another digest.
        """
        return self.requests.add_once(
            new_id(), enqueue, once, request=request, summary=summary, calibration=calibration
        )

    def plan(self, plan_id: str) -> PlanRecord | None:
        """The request of an id."""
        return self.requests.get(plan_id)

    def plans(
        self, limit: int, before: str | None = None, status: Status | None = None
    ) -> Sequence[PlanRecord]:
        """The newest requests first; `before` is the id that the page before ended with."""
        return self.requests.page(limit, before, status=status)

    def start(self, plan_id: str) -> bool:
        """To running; True where it is running now, which a repeated start finds it to be."""
        return self.requests.start(plan_id)

    def report(self, plan_id: str, progress: dict[str, Any]) -> bool:
        """Keeps how far the search is; False tells it to stop, since nobody waits for it."""
        return self.requests.report(plan_id, progress=progress)

    def succeed(
        self,
        plan_id: str,
        result: dict[str, Any],
        found: Iterable[NewCandidate],
        progress: dict[str, Any] | None = None,
    ) -> bool:
        """Keeps the result and all candidates; False where the request is done already."""
        with self.session.begin() as session:
            moved = self.requests.move(
                session,
                plan_id,
                ("running",),
                status="succeeded",
                progress=progress,
                result=result,
                finished_at=now(),
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
        return self.requests.fail(plan_id, error)

    def cancel(self, plan_id: str) -> bool:
        """To cancelled; False where the request is done already."""
        return self.requests.cancel(plan_id)

    def campaign_round(
        self,
        campaign: CampaignRecord,
        state: dict[str, Any],
        files: Sequence[dict[str, Any]],
        enqueue: Enqueue,
        learned: tuple[str, Change] | None = None,
    ) -> Round:
        """Keeps the state of a campaign, queues the trials that it proposes and keeps what it has
        learned, all or nothing.

        campaign: as it was when the round began; where another process has done a round since,
        nothing is kept, since its evidence would count twice. files: trial files as plain data; one
        whose id is there already is not queued again. learned: a kind of cluster, and what becomes
        of what is known of it.
        """
        with self.session.begin() as session:
            # A write first: it locks what is read next, on both databases.
            if not self.campaigns.move(session, campaign.id, ("running",), status="running"):
                return "done"
            row = session.get(CampaignRow, campaign.id, populate_existing=True)
            assert row is not None
            if row.result != campaign.result:
                return "overtaken"
            row.result = state
            for file in files:
                if session.get(TrialRow, file["trial_id"]) is not None:
                    continue
                proposal = file["proposal"]
                session.add(
                    TrialRow(
                        id=file["trial_id"],
                        status="queued",
                        created_at=now(),
                        plan_request_id=campaign.plan_request_id,
                        campaign_id=campaign.id,
                        executor=campaign.executor,
                        trial=file,
                        predicted={
                            "seconds": proposal["predicted_seconds"],
                            "total_bytes": proposal["predicted_bytes"],
                        },
                    )
                )
                session.flush()
                enqueue(session, file["trial_id"])
            if learned is not None:
                self.calibrations.change(session, *learned)
        return "kept"

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
        limit = now() - timedelta(days=IDEMPOTENCY_DAYS)
        with self.session.begin() as session:
            session.execute(sa.delete(IdempotencyRow).where(IdempotencyRow.created_at < limit))
