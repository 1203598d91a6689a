"""Starts and stops the job engine of this process, and hands jobs to it."""

import logging
import threading
import time

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer
from sqlalchemy.orm import Session

from api.jobs import plan_search
from api.jobs.lease import Lease, executor_id
from api.jobs.names import APPLICATION, APPLICATION_VERSION, PLAN_QUEUE, PLAN_SEARCH
from api.jobs.pool import WorkerPool
from api.jobs.services import Services, provide
from api.settings import Settings
from api.store import Store

log = logging.getLogger(__name__)

LOST_SECONDS = 30.0
"""Age from which a request whose job has ended without a word is looked for."""

TIDY_SECONDS = 3600.0
"""How often what nobody needs any more is dropped."""

ENDED = ("ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")

__all__ = ["Jobs", "plan_search"]


class Jobs:
    """The jobs of this process. One per process, as the job engine is."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        self.pool = WorkerPool(settings.search_workers)
        self.executor = executor_id()
        self.lease = Lease(store.engine, self.executor, settings.lease_seconds, self.housekeeping)
        self.ready = False
        self._client: DBOSClient | None = None
        self._tidied = -TIDY_SECONDS

    def start(self) -> None:
        """Launches the engine, registers queues and takes over what dead processes left."""
        provide(Services(self.store, self.pool))
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
        self.lease.beat()
        DBOS.launch()
        DBOS.register_queue(
            PLAN_QUEUE,
            worker_concurrency=self.settings.search_workers,
            polling_interval_sec=0.1,
            on_conflict="always_update",
        )
        self._client = DBOSClient(
            system_database_engine=self.store.engine,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
        )
        self.lease.take_over()
        self.housekeeping()
        self.lease.start()
        threading.Thread(target=self._warm, daemon=True, name="warm").start()
        self.ready = True

    def _warm(self) -> None:
        try:
            self.pool.warm()
        except Exception:  # the first search will say what is wrong
            log.exception("no search process could be started")

    def enqueue_plan(self, session: Session, plan_id: str) -> None:
        """Queues the search of a request in the transaction that stores the request."""
        assert self._client is not None
        self._client.enqueue_in_transaction(
            session,
            {
                "queue_name": PLAN_QUEUE,
                "workflow_name": PLAN_SEARCH,
                "workflow_id": plan_id,
                "app_version": APPLICATION_VERSION,
            },
            plan_id,
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
        """Fails requests whose job ended without saying so: tried too often, or broken."""
        for plan_id in self.store.requests.open(LOST_SECONDS):
            status = DBOS.get_workflow_status(plan_id)
            if status is None or status.status in ENDED:
                ended = "has no job" if status is None else f"ended as {status.status}"
                self.store.fail(plan_id, {"title": "The search was lost", "detail": f"It {ended}."})

    def healthy(self) -> bool:
        """Whether jobs run here and the database answers; raises SQLAlchemyError where not."""
        self.store.ping()
        return self.ready and self.lease.is_alive()

    def stop(self) -> None:
        """Stops in order; searches that run go back to the queue when another process starts."""
        self.ready = False
        self.lease.stop()
        self.pool.stop()
        if self._client is not None:
            self._client.destroy()
        DBOS.destroy()
        try:
            self.lease.forget()
        except sa.exc.SQLAlchemyError:
            log.exception("lease")
        provide(None)
