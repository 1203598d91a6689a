"""The workflow of one request for plans: search, and keep what was found."""

import logging
import time
from typing import Any

from dbos import DBOS
from sqlalchemy.exc import SQLAlchemyError

from api.faults import unexpected
from api.jobs.names import PLAN_SEARCH
from api.jobs.pool import Abandoned, WorkerDied
from api.jobs.services import services
from api.jobs.steps import step
from api.store import NewCandidate
from api.store.records import PredictionRecord

log = logging.getLogger(__name__)

REPORT_SECONDS = 0.25
"""Progress is written at most so often: each report is a transaction."""


@DBOS.workflow(name=PLAN_SEARCH)
def plan_search(plan_id: str) -> str:
    """Runs the search of a request; returns its final status."""
    return run_search(plan_id)


@step("run_search")
def run_search(plan_id: str) -> str:
    """Searches in a process of the pool and keeps the result.

    Runs at least once: after a crash, or where the database failed, it begins anew. The store
    keeps the first result alone.
    """
    store = services().store
    if store.start(plan_id):
        try:
            _search(plan_id)
        except WorkerDied as error:
            store.fail(plan_id, {"title": "The search process died", "detail": str(error)})
        except Abandoned:
            log.info("search %s was cancelled", plan_id)
        except SQLAlchemyError:
            raise
        except Exception as error:  # a fault here must not leave the request running for ever
            log.exception("search %s failed", plan_id)
            store.fail(plan_id, {"title": "The search failed", "detail": unexpected(error)})
    return _status(plan_id)


def _search(plan_id: str) -> None:
    store, pool = services().store, services().pool
    record = store.plan(plan_id)
    assert record is not None
    found: list[NewCandidate] = []
    progress: dict[str, Any] | None = None
    reported = 0.0

    def wanted() -> bool:
        current = store.plan(plan_id)
        return current is not None and current.status == "running"

    asked = {"request": record.request, "calibration": record.calibration}
    for message in pool.run(asked, wanted):
        kind = message["kind"]
        if kind == "progress":
            progress = message["progress"]
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                if not store.report(plan_id, progress):
                    raise Abandoned
        elif kind == "candidate":
            found.append(new_candidate(message["candidate"]))
        elif kind == "done":
            store.succeed(plan_id, message["result"], found, progress)
        else:
            store.fail(plan_id, message["error"])


def _status(plan_id: str) -> str:
    record = services().store.plan(plan_id)
    return "gone" if record is None else record.status


def new_candidate(data: dict[str, Any]) -> NewCandidate:
    """What the store keeps of `planner.candidate.Candidate.to_json`."""
    memory, step, run = data["memory"], data["step"], data["run"]
    return NewCandidate(
        rank=data["rank"],
        plan=data["plan"],
        prediction=PredictionRecord(
            gpus=data["gpus"],
            step_seconds=step["seconds"],
            tokens_per_s=step["tokens_per_s"],
            mfu=step["mfu"],
            memory_bytes=memory["total_bytes"],
            host_bytes=memory["host_bytes"],
            fits=data["fits"],
            fits_probability=data["fits_probability"],
            days=None if run is None else run["days"],
            usd=None if run is None else run["usd"],
            detail={name: value for name, value in data.items() if name != "plan"},
        ),
    )
