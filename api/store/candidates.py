"""Finds candidates: which columns can be filtered and sorted by, and how a page goes on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.orm import Session, contains_eager

from api.store.records import CandidateRecord, PredictionRecord
from api.store.tables import CandidateRow, PredictionRow

Measure = Literal[
    "gpus",
    "step_seconds",
    "tokens_per_s",
    "mfu",
    "memory_bytes",
    "host_bytes",
    "fits_probability",
    "days",
    "usd",
]
"""Columns of a prediction that can be bounded and sorted by."""

SortKey = Measure | Literal["rank"]

_COLUMNS: dict[str, sa.orm.attributes.InstrumentedAttribute[Any]] = {
    "rank": CandidateRow.rank,
    "gpus": PredictionRow.gpus,
    "step_seconds": PredictionRow.step_seconds,
    "tokens_per_s": PredictionRow.tokens_per_s,
    "mfu": PredictionRow.mfu,
    "memory_bytes": PredictionRow.memory_bytes,
    "host_bytes": PredictionRow.host_bytes,
    "fits_probability": PredictionRow.fits_probability,
    "days": PredictionRow.days,
    "usd": PredictionRow.usd,
}
_NULLABLE = ("days", "usd")
_LAST = 1e300
"""Stands for a missing value, so that keyset pages can compare with it; it sorts last."""


@dataclass(frozen=True)
class CandidateQuery:
    """Which candidates, in which order."""

    knobs: Mapping[str, tuple[int | float | bool | str, ...]] = field(default_factory=dict)
    """Allowed values by column of the plan."""
    knob_at_least: Mapping[str, float] = field(default_factory=dict)
    knob_at_most: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    fits: bool | None = None
    sort: SortKey = "rank"
    descending: bool = False
    after: tuple[float, int] | None = None
    """Sort value and rank of the last candidate of the page before."""
    limit: int = 50


@dataclass(frozen=True)
class CandidatePage:
    """Candidates, and where the next page begins; None after the last."""

    items: tuple[CandidateRecord, ...]
    after: tuple[float, int] | None


def _knob(name: str, values: tuple[int | float | bool | str, ...]) -> sa.ColumnElement[bool]:
    """One of the values, compared as what it is: JSON keeps booleans, numbers and names apart."""
    element: Any = CandidateRow.plan[name]
    first = values[0]
    found: sa.ColumnElement[bool]
    if isinstance(first, bool):
        found = element.as_boolean().in_(values)
    elif isinstance(first, int):
        found = element.as_integer().in_(values)
    elif isinstance(first, float):
        found = element.as_float().in_(values)
    else:
        found = element.as_string().in_(values)
    return found


def _sort_column(query: CandidateQuery) -> sa.ColumnElement[Any]:
    column = _COLUMNS[query.sort]
    if query.sort not in _NULLABLE:
        return column.expression
    return sa.func.coalesce(column, -_LAST if query.descending else _LAST)


def _record(row: CandidateRow) -> CandidateRecord:
    made = row.prediction
    return CandidateRecord(
        plan_request_id=row.plan_request_id,
        rank=row.rank,
        plan=row.plan,
        prediction=PredictionRecord(
            gpus=made.gpus,
            step_seconds=made.step_seconds,
            tokens_per_s=made.tokens_per_s,
            mfu=made.mfu,
            memory_bytes=made.memory_bytes,
            host_bytes=made.host_bytes,
            fits=made.fits,
            fits_probability=made.fits_probability,
            days=made.days,
            usd=made.usd,
            detail=made.detail,
        ),
    )


def _sort_value(query: CandidateQuery, record: CandidateRecord) -> float:
    if query.sort == "rank":
        return float(record.rank)
    value = getattr(record.prediction, query.sort)
    missing = -_LAST if query.descending else _LAST
    return missing if value is None else float(value)


def _base(plan_request_id: str) -> sa.Select[CandidateRow]:
    return (
        sa.select(CandidateRow)
        .join(CandidateRow.prediction)
        .options(contains_eager(CandidateRow.prediction))
        .where(CandidateRow.plan_request_id == plan_request_id)
    )


def find(session: Session, plan_request_id: str, query: CandidateQuery) -> CandidatePage:
    """One page. Ties of the sort column are broken by rank, so that no page skips or repeats."""
    select = _base(plan_request_id)
    for name, values in query.knobs.items():
        select = select.where(_knob(name, values))
    for name, value in query.knob_at_least.items():
        select = select.where(CandidateRow.plan[name].as_float() >= value)
    for name, value in query.knob_at_most.items():
        select = select.where(CandidateRow.plan[name].as_float() <= value)
    for name, value in query.at_least.items():
        select = select.where(_COLUMNS[name] >= value)
    for name, value in query.at_most.items():
        select = select.where(_COLUMNS[name] <= value)
    if query.fits is not None:
        select = select.where(PredictionRow.fits.is_(query.fits))
    column = _sort_column(query)
    if query.after is not None:
        value, rank = query.after
        further = column < value if query.descending else column > value
        tied = sa.and_(column == value, CandidateRow.rank > rank)
        select = select.where(sa.or_(further, tied))
    order = column.desc() if query.descending else column.asc()
    select = select.order_by(order, CandidateRow.rank).limit(query.limit + 1)
    records = [_record(row) for row in session.scalars(select)]
    items = tuple(records[: query.limit])
    more = len(records) > query.limit
    after = (_sort_value(query, items[-1]), items[-1].rank) if more else None
    return CandidatePage(items, after)


def one(session: Session, plan_request_id: str, rank: int) -> CandidateRecord | None:
    """The candidate of a rank."""
    row = session.scalar(_base(plan_request_id).where(CandidateRow.rank == rank))
    return None if row is None else _record(row)
