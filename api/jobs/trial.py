"""The workflow of one trial: submit it, watch it, keep its result."""

import logging
import time

from dbos import DBOS
from sqlalchemy.exc import SQLAlchemyError

from api.faults import unexpected
from api.jobs.names import TRIAL
from api.jobs.pool import ShuttingDown
from api.jobs.services import services
from api.jobs.steps import step
from api.store import TrialRecord
from planner.errors import RequestError
from trials.executors.protocol import Executor, State
from trials.preflight import Refused
from trials.result import TrialResult
from trials.trial_file import TrialFile

log = logging.getLogger(__name__)

LOGS = 20_000
"""Characters at the end of a trial's output that are kept."""

LONGEST_REST_S = 5.0
"""Between two looks at a trial; at first they follow one another quickly."""

LOST_S = 300.0
"""How long after its time limit a trial may be unknown to its executor."""

DEAF = 20
"""So often in a row an executor may fail to say where a trial is."""


class Lost(Exception):  # noqa: N818 - it says what happened
    """The executor knows the trial no more, and there is no result."""


@DBOS.workflow(name=TRIAL)
def trial(trial_id: str) -> str:
    """Runs it; returns its final status."""
    return run_trial(trial_id)


@step("run_trial")
def run_trial(trial_id: str) -> str:
    """Submits and watches. Runs at least once: the executor looks the id up before it starts it."""
    table = services().store.trials
    wanted = table.start(trial_id)
    record = table.get(trial_id)
    if record is None:
        return "gone"
    try:
        executor = services().executors.get(record.executor)
        if wanted:
            executor.submit(TrialFile.model_validate(record.trial))
            result = _watched(executor, record)
        else:
            result = _ended(executor, trial_id)
        _keep(executor, trial_id, result)
    except (Refused, RequestError) as refused:
        table.fail(trial_id, {"title": "The trial was refused", "detail": str(refused)})
    except Lost as lost:
        table.fail(trial_id, {"title": "The trial was lost", "detail": str(lost)})
    except SQLAlchemyError:
        raise
    except Exception as error:  # a fault here must not leave it running for ever
        if services().stopping.is_set():
            raise ShuttingDown from error
        log.exception("trial %s failed", trial_id)
        table.fail(trial_id, {"title": "The trial failed", "detail": unexpected(error)})
    ended = table.get(trial_id)
    return "gone" if ended is None else ended.status


def _watched(executor: Executor, record: TrialRecord) -> TrialResult | None:
    """Waits for the result; ends the trial where nobody waits for it any more."""
    began = unknown_since = time.monotonic()
    limit = record.trial.get("timeout_s", 0.0) + LOST_S
    deaf = 0
    told: State | None = None
    while True:
        try:
            state = executor.state(record.id)
            deaf = 0
        except (OSError, RuntimeError) as error:
            deaf += 1
            if deaf >= DEAF:
                raise Lost(f"the executor does not answer: {error}") from error
            state = State.UNKNOWN
        if state is State.ENDED:
            return executor.result(record.id)
        now = time.monotonic()
        unknown_since = unknown_since if state is State.UNKNOWN else now
        if now - unknown_since > limit:
            raise Lost(f"the executor has not known it for {limit:.0f} s, and there is no result")
        if not _still_wanted(record.id, state if state is not told else None):
            return _ended(executor, record.id)
        told = state
        services().rest(min(0.05 + (now - began) / 10, LONGEST_REST_S))


def _still_wanted(trial_id: str, state: State | None) -> bool:
    """Writes a new state; False where the trial was cancelled."""
    table = services().store.trials
    if state is not None:
        return table.report(trial_id, state=state.value)
    current = table.get(trial_id)
    return current is not None and current.status == "running"


def _ended(executor: Executor, trial_id: str) -> TrialResult | None:
    """Ends a trial that was cancelled, where it was begun; what it left."""
    if executor.state(trial_id) is not State.UNKNOWN:
        executor.cancel(trial_id)
    return executor.result(trial_id)


def _keep(executor: Executor, trial_id: str, result: TrialResult | None) -> None:
    """Writes the result down; of a cancelled trial too."""
    table = services().store.trials
    values = {
        "state": State.ENDED.value,
        "result": None if result is None else result.model_dump(mode="json"),
        "logs": executor.logs(trial_id)[-LOGS:].replace("\0", ""),
    }
    if not table.succeed(trial_id, **values):
        table.amend(trial_id, **values)
