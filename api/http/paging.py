"""Keyset pages of what a job works on, the newest first."""

from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field

from api.http.cursor import decode, encode
from api.store import Status
from api.store.jobs import JobTable
from api.store.records import JobRecord

Record = TypeVar("Record", bound=JobRecord)


class PageQuery(BaseModel):
    """Which part of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(20, ge=1, le=200)
    cursor: str | None = Field(None, max_length=200)
    status: Status | None = None


class JobsQuery(PageQuery):
    """Which part of a list of what was made from requests for plans."""

    plan_id: str | None = Field(None, max_length=100)


def page_of(
    table: JobTable[Any, Record], path: str, query: PageQuery
) -> tuple[Sequence[Record], str | None]:
    """The records of a page, and the path of the next one; every other field is a filter."""
    equal = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
    shown = dict(equal)
    if "plan_id" in equal:
        equal["plan_request_id"] = equal.pop("plan_id")
    before = None if query.cursor is None else str(decode(query.cursor, str)[0])
    found = table.page(query.limit + 1, before, **equal)
    records = found[: query.limit]
    if len(found) <= query.limit:
        return records, None
    more = {"limit": query.limit, "cursor": encode(records[-1].id)} | shown
    return records, f"{path}?{urlencode(more)}"
