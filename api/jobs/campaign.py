"""The workflow of one campaign: rounds of trials, from each of which the ranking is learned anew.

Everything a campaign knows is its state in the store. A round reads the results of trials that
have ended, lets a search process compute, and writes the new state together with the trials that
it proposes, all or nothing: a service that is killed in between repeats the round, not its trials.
"""

import logging
from typing import Any

from dbos import DBOS
from sqlalchemy.exc import SQLAlchemyError

from api.calibrated import learned
from api.faults import unexpected
from api.jobs.names import CAMPAIGN
from api.jobs.pool import Abandoned, WorkerDied
from api.jobs.services import services
from api.jobs.steps import step
from api.store import CampaignRecord, TrialRecord
from trials.outcome import Outcome
from trials.result import TrialResult

log = logging.getLogger(__name__)

REST_S = 0.1
"""Between two looks at the trials of a campaign, at first."""

LONGEST_REST_S = 2.0


class Refused(Exception):  # noqa: N818 - it says what happened
    """The computing process refused the campaign; the payload says why."""


@DBOS.workflow(name=CAMPAIGN)
def campaign(campaign_id: str) -> str:
    """Runs it to its end; returns its final status."""
    while run_round(campaign_id):
        pass
    return end_campaign(campaign_id)


@step("run_round")
def run_round(campaign_id: str) -> bool:
    """Waits for a trial to end, learns, and queues what comes next; False where all is done."""
    table = services().store.campaigns
    if not table.start(campaign_id):
        return False
    record = table.get(campaign_id)
    assert record is not None
    try:
        results = _awaited(record)
        return results is not None and _learned(record, results)
    except Abandoned:
        return False
    except (WorkerDied, Refused) as error:
        detail = error.args[0]
        said = detail if isinstance(detail, dict) else {"detail": unexpected(error)}
        table.fail(campaign_id, {"title": "The campaign failed"} | said)
    except SQLAlchemyError:
        raise
    except Exception as error:  # a fault here must not leave it running for ever
        log.exception("campaign %s failed", campaign_id)
        table.fail(campaign_id, {"title": "The campaign failed", "detail": unexpected(error)})
    return False


@step("end_campaign")
def end_campaign(campaign_id: str) -> str:
    """Ends the trials that nobody waits for any more."""
    store = services().store
    for trial in _trials(campaign_id):
        if not trial.done:
            store.trials.cancel(trial.id)
    record = store.campaigns.get(campaign_id)
    return "gone" if record is None else record.status


def _trials(campaign_id: str) -> list[TrialRecord]:
    return list(services().store.trials.page(10_000, campaign_id=campaign_id))


def _awaited(record: CampaignRecord) -> dict[str, Any] | None:
    """Results of pending trials, once there is one; None where the campaign was cancelled."""
    state = record.result
    pending = {t["trial_id"] for t in state["trials"] if t["outcome"] is None} if state else set()
    rest = REST_S
    while True:
        ended = [t for t in _trials(record.id) if t.id in pending and _told(t)]
        if ended or not pending:
            return {t.id: _result(t) for t in ended}
        current = services().store.campaigns.get(record.id)
        if current is None or current.status != "running":
            return None
        services().rest(rest)
        rest = min(rest * 1.2, LONGEST_REST_S)


def _told(trial: TrialRecord) -> bool:
    """Whether all is known of it that will be; one that was cancelled still ends its ranks."""
    return trial.done and (trial.status != "cancelled" or trial.state == "ended")


def _result(trial: TrialRecord) -> dict[str, Any]:
    """Its result; one that could not be run has an outcome too."""
    if trial.result is not None:
        return trial.result
    message = (trial.error or {}).get("detail", "")
    kind = "cancelled" if trial.status == "cancelled" else "launch_failure"
    outcome = Outcome(kind=kind, message=message)
    return TrialResult(trial_id=trial.id, outcome=outcome, ranks=()).model_dump(mode="json")


def _learned(record: CampaignRecord, results: dict[str, Any]) -> bool:
    """One turn of the campaign, written down; whether it goes on."""
    store, executors = services().store, services().executors
    plan = store.plan(record.plan_request_id)
    assert plan is not None

    def wanted() -> bool:
        current = store.campaigns.get(record.id)
        return current is not None and current.status == "running"

    asked = {
        "campaign_id": record.id,
        "request": plan.request,
        "settings": record.settings,
        "ranks": executors.get(record.executor).ranks,
        "known": record.known,
        "state": record.result,
        "results": results,
    }
    answer = list(services().campaign_pool.run(asked, wanted))[-1]
    if answer["kind"] != "done":
        raise Refused(answer["error"])
    state, files = answer["result"]["state"], answer["result"]["files"]
    new = learned(record.known, record.result, state)

    def change(kept: dict[str, Any] | None) -> dict[str, Any]:
        assert new is not None
        return new.beside(kept).model_dump(mode="json")

    became = store.campaign_round(
        record,
        state,
        files,
        services().enqueue_trial(record.executor),
        None if new is None else (new.after.key, change),
    )
    if became != "kept":
        return became == "overtaken"
    if state["ended"] is not None:
        store.campaigns.succeed(record.id)
        return False
    if not files and not any(t["outcome"] is None for t in state["trials"]):
        raise Refused({"detail": "no trial is left that could be run, and none is awaited"})
    return True
