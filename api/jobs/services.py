"""What workflows work with. The job engine calls them as plain functions, so they look it up."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from api.executors import Executors
from api.jobs.pool import ShuttingDown, WorkerPool
from api.store import Store
from api.store.jobs import Enqueue


@dataclass(frozen=True)
class Services:
    """The parts of this process."""

    store: Store
    pool: WorkerPool
    """For searches."""
    campaign_pool: WorkerPool
    """For what campaigns compute between their trials."""
    executors: Executors
    stopping: threading.Event
    enqueue_trial: Callable[[str], Enqueue]
    """Puts a trial into the queue of an executor."""

    def rest(self, seconds: float) -> None:
        """Waits; raises ShuttingDown where the service stops meanwhile."""
        if self.stopping.wait(seconds):
            raise ShuttingDown


class _Current:
    services: Services | None = None


def provide(services: Services | None) -> None:
    """Sets them for this process; None takes them away."""
    _Current.services = services


def services() -> Services:
    """Those of this process; RuntimeError before Jobs.start."""
    if _Current.services is None:
        raise RuntimeError("jobs are not started in this process")
    return _Current.services
