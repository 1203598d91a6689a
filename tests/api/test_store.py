"""Every store must pass these, on SQLite and on PostgreSQL."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from api.store import IdempotencyConflict, NewCandidate, Once, Store
from api.store.candidates import CandidateQuery
from api.store.tables import PlanRequestRow
from tests.api.samples import SHORTEST, candidate


def _ignore(_session: Session, _plan_id: str) -> None:
    """No queue."""


def _added(store: Store) -> str:
    return store.add_plan(SHORTEST, {"objective": "throughput"}, _ignore)[0].id


def _succeeded(store: Store, found: list[NewCandidate]) -> str:
    plan_id = _added(store)
    assert store.start(plan_id)
    assert store.succeed(plan_id, {"kept": len(found)}, found)
    return plan_id


def test_a_request_comes_back_as_it_went_in(store: Store) -> None:
    plan_id = _added(store)
    record = store.plan(plan_id)
    assert record is not None
    assert record.request == SHORTEST
    assert record.status == "queued"
    assert record.progress is None
    age = datetime.now(UTC) - record.created_at
    assert 0 <= age.total_seconds() < 60


def test_an_unknown_id_is_none(store: Store) -> None:
    assert store.plan("0" * 36) is None


def test_a_request_whose_job_cannot_be_queued_is_not_stored(store: Store) -> None:
    def broken(_session: Session, _plan_id: str) -> None:
        raise RuntimeError("no queue")

    with pytest.raises(RuntimeError):
        store.add_plan(SHORTEST, {}, broken)
    assert store.plans(10) == []


def test_the_queue_writes_in_the_transaction_of_the_request(store: Store) -> None:
    seen: list[str] = []

    def look(session: Session, plan_id: str) -> None:
        inside = session.scalar(sa.select(PlanRequestRow.id))
        assert inside == plan_id
        seen.append(plan_id)

    store.add_plan(SHORTEST, {}, look)
    assert len(seen) == 1


def test_a_key_used_again_returns_the_first_request(store: Store) -> None:
    first, replayed = store.add_plan(SHORTEST, {}, _ignore, Once("plans", "key", "digest"))
    assert not replayed
    second, replayed = store.add_plan(SHORTEST, {}, _ignore, Once("plans", "key", "digest"))
    assert replayed
    assert second.id == first.id
    assert len(store.plans(10)) == 1


def test_a_key_used_with_another_body_is_a_conflict(store: Store) -> None:
    store.add_plan(SHORTEST, {}, _ignore, Once("plans", "key", "digest"))
    with pytest.raises(IdempotencyConflict):
        store.add_plan(SHORTEST, {}, _ignore, Once("plans", "key", "another"))


def test_of_many_at_once_with_one_key_one_is_stored(store: Store) -> None:
    ids: list[str] = []

    def add() -> None:
        ids.append(store.add_plan(SHORTEST, {}, _ignore, Once("plans", "key", "digest"))[0].id)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1
    assert len(store.plans(10)) == 1


def test_requests_are_listed_newest_first_and_page_by_id(store: Store) -> None:
    ids = [_added(store) for _ in range(5)]
    listed = [r.id for r in store.plans(3)]
    rest = [r.id for r in store.plans(3, before=listed[-1])]
    assert listed + rest == sorted(ids, reverse=True)


def test_requests_are_listed_by_status(store: Store) -> None:
    running, _queued = _added(store), _added(store)
    store.start(running)
    assert [r.id for r in store.plans(10, status="running")] == [running]


def test_starting_twice_keeps_the_first_start(store: Store) -> None:
    plan_id = _added(store)
    assert store.start(plan_id)
    first = store.plan(plan_id)
    assert store.start(plan_id)
    second = store.plan(plan_id)
    assert first is not None
    assert second is not None
    assert first.started_at is not None
    assert second.started_at == first.started_at


def test_only_the_first_of_two_results_is_kept(store: Store) -> None:
    plan_id = _succeeded(store, [candidate(1), candidate(2)])
    assert not store.succeed(plan_id, {"kept": 1}, [candidate(3)])
    record = store.plan(plan_id)
    assert record is not None
    assert record.result == {"kept": 2}
    page = store.candidates(plan_id, CandidateQuery())
    assert [c.rank for c in page.items] == [1, 2]


@pytest.mark.parametrize("move", ["start", "cancel", "fail", "report"])
def test_a_request_that_is_done_moves_no_more(store: Store, move: str) -> None:
    plan_id = _succeeded(store, [])
    arguments: dict[str, Any] = {"fail": ({"title": "x"},), "report": ({"evaluated": 1},)}
    assert not getattr(store, move)(plan_id, *arguments.get(move, ()))
    record = store.plan(plan_id)
    assert record is not None
    assert record.status == "succeeded"


def test_a_cancelled_search_is_told_so_by_its_next_report(store: Store) -> None:
    plan_id = _added(store)
    store.start(plan_id)
    assert store.report(plan_id, {"evaluated": 1})
    assert store.cancel(plan_id)
    assert not store.report(plan_id, {"evaluated": 2})
    record = store.plan(plan_id)
    assert record is not None
    assert record.progress == {"evaluated": 1}


def test_candidates_page_without_gap_or_repetition_where_values_tie(store: Store) -> None:
    found = [candidate(rank, mfu=0.5 if rank % 3 else 0.25) for rank in range(1, 24)]
    plan_id = _succeeded(store, found)
    for descending in (False, True):
        ranks: list[int] = []
        after = None
        while True:
            query = CandidateQuery(sort="mfu", descending=descending, after=after, limit=5)
            page = store.candidates(plan_id, query)
            ranks += [c.rank for c in page.items]
            after = page.after
            if after is None:
                break
        low = [r for r in range(1, 24) if r % 3 == 0]
        high = [r for r in range(1, 24) if r % 3]
        assert ranks == (high + low if descending else low + high)


def test_candidates_without_a_price_sort_last_either_way(store: Store) -> None:
    plan_id = _succeeded(store, [candidate(1), candidate(2, usd=5.0), candidate(3, usd=2.0)])
    for descending, wanted in ((False, [3, 2, 1]), (True, [2, 3, 1])):
        ranks = []
        after = None
        for _ in range(3):
            query = CandidateQuery(sort="usd", descending=descending, after=after, limit=1)
            page = store.candidates(plan_id, query)
            ranks += [c.rank for c in page.items]
            after = page.after
        assert ranks == wanted


@pytest.mark.parametrize(
    ("query", "ranks"),
    [
        (CandidateQuery(knobs={"tp": (2,)}), [2]),
        (CandidateQuery(knobs={"tp": (1, 2)}), [1, 2]),
        (CandidateQuery(knobs={"software": ("megatron_deepspeed",)}), [3]),
        (CandidateQuery(knobs={"compile": (True,)}), [3]),
        (CandidateQuery(knobs={"offload_ratio": (0.5,)}), [2]),
        (CandidateQuery(knob_at_least={"tp": 2}), [2, 3]),
        (CandidateQuery(knob_at_most={"zero_stage": 1}), [1, 3]),
        (CandidateQuery(fits=False), [3]),
        (CandidateQuery(fits=True), [1, 2]),
        (CandidateQuery(at_most={"step_seconds": 2.0}), [1, 2]),
        (CandidateQuery(at_least={"memory_bytes": 2.0**31}), [2, 3]),
        (CandidateQuery(sort="tokens_per_s"), [3, 2, 1]),
        (CandidateQuery(knobs={"tp": (2,)}, fits=False), []),
    ],
)
def test_candidates_are_filtered_and_sorted(
    store: Store, query: CandidateQuery, ranks: list[int]
) -> None:
    found = [
        candidate(1, zero_stage=1),
        candidate(2, tp=2, zero_stage=3, offload_ratio=0.5),
        candidate(3, tp=4, fits=False, software="megatron_deepspeed", compile=True),
    ]
    plan_id = _succeeded(store, found)
    assert [c.rank for c in store.candidates(plan_id, query).items] == ranks


def test_a_candidate_is_found_by_its_rank(store: Store) -> None:
    plan_id = _succeeded(store, [candidate(1), candidate(2, tp=2)])
    found = store.candidate(plan_id, 2)
    assert found is not None
    assert found.plan["tp"] == 2
    assert store.candidate(plan_id, 3) is None


def test_requests_that_are_not_done_are_found_by_age(store: Store) -> None:
    waiting, done = _added(store), _added(store)
    store.cancel(done)
    assert list(store.requests.open(older_than_s=-1)) == [waiting]
    assert list(store.requests.open(older_than_s=60)) == []
