"""What a job works on, in every store: on SQLite and on PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from api.store import Store, TrialRecord, new_id
from tests.api.samples import SHORTEST

Queued = list[str]


def _ignore(_session: Session, _job_id: str) -> None:
    """No queue."""


@pytest.fixture
def plan_id(store: Store) -> str:
    return store.add_plan(SHORTEST, {}, _ignore)[0].id


def _trial(store: Store, plan_id: str, trial_id: str = "trial", **values: Any) -> TrialRecord:
    given = {"plan_request_id": plan_id, "executor": "local", "trial": {"steps": 5}} | values
    return store.trials.add(trial_id, _ignore, **given)


def test_a_trial_comes_back_as_it_went_in(store: Store, plan_id: str) -> None:
    record = _trial(store, plan_id, rank=3, predicted={"seconds": 0.5})
    assert store.trials.get("trial") == record
    assert (record.status, record.rank, record.campaign_id) == ("queued", 3, None)
    assert (record.trial, record.predicted) == ({"steps": 5}, {"seconds": 0.5})
    assert store.trials.get("other") is None


def test_an_id_that_is_there_is_not_queued_again(store: Store, plan_id: str) -> None:
    queued: Queued = []

    def enqueue(_session: Session, job_id: str) -> None:
        queued.append(job_id)

    for rank in (1, 2):
        values = {"plan_request_id": plan_id, "rank": rank, "options": {}}
        assert store.dry_runs.add("same", enqueue, **values).rank == 1
    assert queued == ["same"]


def test_what_cannot_be_queued_is_not_stored(store: Store, plan_id: str) -> None:
    def broken(_session: Session, _job_id: str) -> None:
        raise RuntimeError("no queue")

    with pytest.raises(RuntimeError):
        store.dry_runs.add("lost", broken, plan_request_id=plan_id, rank=1, options={})
    assert store.dry_runs.get("lost") is None


def test_only_the_first_of_two_ends_is_kept(store: Store, plan_id: str) -> None:
    _trial(store, plan_id)
    assert not store.trials.succeed("trial", result={"n": 0})
    assert store.trials.start("trial")
    assert store.trials.succeed("trial", result={"n": 1}, logs="one")
    assert not store.trials.succeed("trial", result={"n": 2})
    assert not store.trials.fail("trial", {"title": "late"})
    assert not store.trials.cancel("trial")
    assert not store.trials.start("trial")
    record = store.trials.get("trial")
    assert record is not None
    assert (record.status, record.result, record.logs) == ("succeeded", {"n": 1}, "one")
    assert record.finished_at is not None


def test_a_cancelled_trial_still_takes_what_it_left(store: Store, plan_id: str) -> None:
    _trial(store, plan_id)
    assert store.trials.cancel("trial")
    assert not store.trials.start("trial")
    assert store.trials.amend("trial", result={"n": 1})
    record = store.trials.get("trial")
    assert record is not None
    assert (record.status, record.result) == ("cancelled", {"n": 1})


def test_pages_are_filtered_and_go_on_without_gap(store: Store, plan_id: str) -> None:
    other = store.add_plan(SHORTEST, {}, _ignore)[0].id
    ids = [new_id() for _ in range(5)]
    for trial_id in ids:
        _trial(store, plan_id, trial_id)
        _trial(store, other, new_id())
    first = [t.id for t in store.trials.page(3, plan_request_id=plan_id)]
    rest = [t.id for t in store.trials.page(3, before=first[-1], plan_request_id=plan_id)]
    assert first + rest == sorted(ids, reverse=True)
    assert len(store.trials.page(100, plan_request_id=None)) == 10


def _file(trial_id: str) -> dict[str, Any]:
    proposal = {"predicted_seconds": 0.5, "predicted_bytes": 1e9}
    return {"trial_id": trial_id, "proposal": proposal}


def test_a_round_keeps_the_state_and_queues_its_trials_together(store: Store, plan_id: str) -> None:
    values = {"plan_request_id": plan_id, "executor": "slurm", "settings": {}}
    campaign = store.campaigns.add("campaign", _ignore, **values)
    queued: Queued = []

    def enqueue(_session: Session, job_id: str) -> None:
        queued.append(job_id)

    files = [_file("campaign-000"), _file("campaign-001")]
    assert store.campaign_round(campaign, {"n": 0}, files, enqueue) == "done"
    store.campaigns.start("campaign")
    assert store.campaign_round(campaign, {"n": 1}, files[:1], enqueue) == "kept"
    assert store.campaign_round(campaign, {"n": 9}, files, enqueue) == "overtaken"
    campaign = store.campaigns.get("campaign") or campaign
    assert store.campaign_round(campaign, {"n": 2}, files, enqueue) == "kept"
    assert queued == ["campaign-000", "campaign-001"]
    trials = store.trials.page(10, campaign_id="campaign")
    assert sorted(t.id for t in trials) == queued
    assert {t.executor for t in trials} == {"slurm"}
    assert trials[0].predicted == {"seconds": 0.5, "total_bytes": 1e9}

    def broken(_session: Session, _job_id: str) -> None:
        raise RuntimeError("no queue")

    record = store.campaigns.get("campaign")
    assert record is not None
    with pytest.raises(RuntimeError):
        store.campaign_round(record, {"n": 3}, [_file("campaign-002")], broken)
    record = store.campaigns.get("campaign")
    assert record is not None
    assert record.result == {"n": 2}
    assert store.trials.get("campaign-002") is None


def _learn(store: Store, campaign_id: str, key: str, trials: int, fails: bool = False) -> None:
    """A round that adds trials to what is known of a kind of cluster."""

    def more(known: dict[str, Any] | None) -> dict[str, Any]:
        return {"n_trials": trials + (known["n_trials"] if known else 0)}

    def enqueue(_session: Session, _job_id: str) -> None:
        if fails:
            raise RuntimeError("no queue")

    campaign = store.campaigns.get(campaign_id)
    assert campaign is not None
    state = {"round": 1 + (campaign.result or {"round": 0})["round"]}
    file = _file(f"{campaign_id}-{state['round']}")
    assert store.campaign_round(campaign, state, [file], enqueue, (key, more)) == "kept"


def _begun(store: Store, plan_id: str, campaign_id: str) -> str:
    values = {"plan_request_id": plan_id, "executor": "slurm", "settings": {}}
    store.campaigns.add(campaign_id, _ignore, **values)
    assert store.campaigns.start(campaign_id)
    return campaign_id


def test_what_a_round_has_learned_is_kept_with_its_state_or_not_at_all(
    store: Store, plan_id: str
) -> None:
    kept, campaign = store.calibrations, _begun(store, plan_id, "campaign")
    assert kept.get("a100") is None
    _learn(store, campaign, "a100", 4)
    _learn(store, campaign, "a100", 2)
    _learn(store, campaign, "cpu", 1)
    with pytest.raises(RuntimeError):
        _learn(store, campaign, "a100", 100, fails=True)
    record = kept.get("a100")
    assert record is not None
    assert (record.calibration, record.trials) == ({"n_trials": 6}, 6)
    assert [r.key for r in kept.every()] == ["cpu", "a100"]
    assert kept.forget("a100")
    assert not kept.forget("a100")


def test_campaigns_at_once_lose_nothing_of_what_either_has_learned(
    store: Store, plan_id: str
) -> None:
    rounds, names = 12, ("one", "other", "third")
    for name in names:
        _begun(store, plan_id, name)

    def run(name: str) -> None:
        for _ in range(rounds):
            while True:
                try:
                    _learn(store, name, "a100", 1)
                    break
                except sa.exc.IntegrityError:
                    continue  # the first row of the kind came from another one; steps are retried

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(run, names))
    record = store.calibrations.get("a100")
    assert record is not None
    assert record.trials == rounds * len(names)


def test_what_was_made_from_a_request_goes_with_it(store: Store, plan_id: str) -> None:
    values = {"plan_request_id": plan_id, "executor": "local", "settings": {}}
    store.campaigns.add("campaign", _ignore, **values)
    _trial(store, plan_id, campaign_id="campaign")
    with store.session.begin() as session:
        session.execute(
            sa.text("DELETE FROM mw_plan_requests WHERE id = :id").bindparams(id=plan_id)
        )
    assert store.campaigns.get("campaign") is None
    assert store.trials.get("trial") is None
