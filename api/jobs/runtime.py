"""Starts and stops the job engine of this process, and hands jobs to it."""

import logging
import threading
import time
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer
from sqlalchemy.orm import Session

from api.executors import Executors
from api.jobs import campaign, dry_run, plan_search, trial
from api.jobs.lease import Lease, executor_id
from api.jobs.names import (
    APPLICATION,
    APPLICATION_VERSION,
    CAMPAIGN,
    CAMPAIGN_QUEUE,
    DRY_RUN,
    DRY_RUN_QUEUE,
    PLAN_QUEUE,
    PLAN_SEARCH,
    TRIAL,
    trial_queue,
)
from api.jobs.pool import WorkerPool
from api.jobs.services import Services, provide
from api.settings import Settings
from api.store import Store
from api.store.jobs import Enqueue, JobTable

log = logging.getLogger(__name__)

LOST_SECONDS = 30.0
"""Age from which a request whose job has ended without a word is looked for."""

TIDY_SECONDS = 3600.0
"""How often what nobody needs any more is dropped."""

LET_GO_SECONDS = 5
"""How long jobs may take to notice that the service stops."""

ENDED = ("ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")

LOOK_S = {PLAN_QUEUE: 0.1, DRY_RUN_QUEUE: 0.5, CAMPAIGN_QUEUE: 0.5}
"""How often each queue is looked at: a search may be awaited by a person, what comes after takes
long itself, and every look costs processor time also where nothing is to be done."""

OTHERS_LOOK_S = 0.25
"""The same of trials."""

CAMPAIGNS = 16
"""Campaigns at a time: they wait for trials, whose executors have limits of their own."""

__all__ = ["Jobs", "campaign", "dry_run", "plan_search", "trial"]


class Jobs:
    """The jobs of this process. One per process, as the job engine is."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        self.pool = WorkerPool(settings.search_workers)
        self.campaign_pool = WorkerPool(1)
        self.executors = Executors(settings)
        self.stopping = threading.Event()
        self.executor = executor_id()
        self.lease = Lease(store.engine, self.executor, settings.lease_seconds, self.housekeeping)
        self.ready = False
        self._client: DBOSClient | None = None
        self._tidied = -TIDY_SECONDS

    def start(self) -> None:
        """Launches the engine, registers queues and takes over what dead processes left."""
        provide(
            Services(
                self.store,
                self.pool,
                self.campaign_pool,
                self.executors,
                self.stopping,
                self.enqueue_trial,
            )
        )
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_url": self.settings.url,
            "executor_id": self.executor,
            "application_version": APPLICATION_VERSION,
            # The default one is pickle, and what users send ends up in it.
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "WARNING",
            "notification_listener_polling_interval_sec": 0.5,
        }
        DBOS(config=config)
        DBOS.migrate(self.settings.url)
        self._client = self.lease.client = DBOSClient(
            system_database_engine=self.store.engine,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
        )
        self.lease.beat()
        # Before any queue is served: a trial that still runs must get the slot that it fills, and
        # among what waits the jobs of the dead are the oldest.
        self.lease.take_over()
        DBOS.launch()
        self._register_queues()
        self.housekeeping()
        self.lease.start()
        threading.Thread(target=self._warm, daemon=True, name="warm").start()
        self.ready = True

    def _warm(self) -> None:
        try:
            self.pool.warm()
        except Exception:  # the first search will say what is wrong
            log.exception("no search process could be started")

    def _register_queues(self) -> None:
        limits = {
            PLAN_QUEUE: self.settings.search_workers,
            DRY_RUN_QUEUE: self.settings.dry_run_workers,
            CAMPAIGN_QUEUE: CAMPAIGNS,
        }
        for name in self.executors.names:
            limits[trial_queue(name)] = self.executors.at_a_time(name)
        for queue, at_a_time in limits.items():
            DBOS.register_queue(
                queue,
                worker_concurrency=at_a_time,
                polling_interval_sec=LOOK_S.get(queue, OTHERS_LOOK_S),
                on_conflict="always_update",
            )

    def _enqueue(self, session: Session, queue: str, workflow: str, job_id: str) -> None:
        assert self._client is not None
        self._client.enqueue_in_transaction(
            session,
            {
                "queue_name": queue,
                "workflow_name": workflow,
                "workflow_id": job_id,
                "app_version": APPLICATION_VERSION,
            },
            job_id,
        )

    def enqueue_plan(self, session: Session, plan_id: str) -> None:
        """Queues the search of a request in the transaction that stores the request."""
        self._enqueue(session, PLAN_QUEUE, PLAN_SEARCH, plan_id)

    def enqueue_dry_run(self, session: Session, dry_run_id: str) -> None:
        """Queues a dry run in the transaction that stores it."""
        self._enqueue(session, DRY_RUN_QUEUE, DRY_RUN, dry_run_id)

    def enqueue_campaign(self, session: Session, campaign_id: str) -> None:
        """Queues a campaign in the transaction that stores it."""
        self._enqueue(session, CAMPAIGN_QUEUE, CAMPAIGN, campaign_id)

    def enqueue_trial(self, executor: str) -> Enqueue:
        """Queues a trial for an executor in the transaction that stores it."""
        return lambda session, trial_id: self._enqueue(
            session, trial_queue(executor), TRIAL, trial_id
        )

    def cancel_plan(self, plan_id: str) -> bool:
        """Cancels a search; False where it was done already."""
        if not self.store.cancel(plan_id):
            return False
        DBOS.cancel_workflow(plan_id)
        return True

    def housekeeping(self) -> None:
        """What one process does for all, now and then."""
        self.settle_lost()
        if time.monotonic() - self._tidied >= TIDY_SECONDS:
            self._tidied = time.monotonic()
            self.store.forget_idempotency_keys()
            self.lease.forget_the_dead()

    def settle_lost(self) -> None:
        """Fails whatever has a job that ended without saying so: tried too often, or broken."""
        tables: dict[str, JobTable[Any, Any]] = {
            "search": self.store.requests,
            "dry run": self.store.dry_runs,
            "trial": self.store.trials,
            "campaign": self.store.campaigns,
        }
        for what, table in tables.items():
            for job_id in table.open(LOST_SECONDS):
                status = DBOS.get_workflow_status(job_id)
                if status is None or status.status in ENDED:
                    ended = "has no job" if status is None else f"ended as {status.status}"
                    table.fail(job_id, {"title": f"The {what} was lost", "detail": f"It {ended}."})

    def healthy(self) -> bool:
        """Whether jobs run here and the database answers; raises SQLAlchemyError where not."""
        self.store.ping()
        return self.ready and self.lease.is_alive()

    def stop(self) -> None:
        """Stops in order; searches that run go back to the queue when another process starts."""
        self.ready = False
        self.stopping.set()
        self.lease.stop()
        self.pool.stop()
        self.campaign_pool.stop()
        self.executors.close()
        if self._client is not None:
            self._client.destroy()
        DBOS.destroy(workflow_completion_timeout_sec=LET_GO_SECONDS)
        try:
            self.lease.forget()
        except sa.exc.SQLAlchemyError:
            log.exception("lease")
        provide(None)
