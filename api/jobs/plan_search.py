"""The workflow of one request for plans: search, and keep what was found."""

import logging
import time
from typing import Any

from dbos import DBOS

from api.jobs.names import PLAN_SEARCH
from api.jobs.pool import Abandoned, WorkerDied
from api.jobs.services import services
from api.store import NewCandidate
from api.store.records import PredictionRecord

log = logging.getLogger(__name__)

REPORT_SECONDS = 0.25
"""Progress is written at most so often: each report is a transaction."""


@DBOS.workflow(name=PLAN_SEARCH)
def plan_search(plan_id: str) -> str:
    """Runs the search of a request; returns its final status."""
    return run_search(plan_id)


@DBOS.step(name="run_search")
def run_search(plan_id: str) -> str:
    """Searches in a process of the pool and keeps the result.

    Runs at least once: after a crash it begins anew. The store keeps the first result alone.
    """
    store, pool = services().store, services().pool
    if not store.start(plan_id):
        return _status(plan_id)
    record = store.plan(plan_id)
    assert record is not None
    found: list[NewCandidate] = []
    reported = 0.0

    def wanted() -> bool:
        current = store.plan(plan_id)
        return current is not None and current.status == "running"

    try:
        for message in pool.run({"request": record.request}, wanted):
            kind = message["kind"]
            if kind == "progress" and time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                if not store.report(plan_id, message["progress"]):
                    raise Abandoned
            elif kind == "candidate":
                found.append(new_candidate(message["candidate"]))
            elif kind == "done":
                seen = message["result"]["certificate"]
                last = {"evaluated": seen["evaluated"], "known": seen["legal"]}
                store.succeed(plan_id, message["result"], found, last)
            elif kind in {"refused", "error"}:
                store.fail(plan_id, message["error"])
    except WorkerDied as error:
        store.fail(plan_id, {"title": "The search process died", "detail": str(error)})
    except Abandoned:
        log.info("search %s was cancelled", plan_id)
    return _status(plan_id)


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
