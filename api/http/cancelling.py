"""Cancels what a job works on."""

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import HTTPException

from api.store.jobs import JobTable
from api.store.records import JobRecord
from api.wording import standing

Record = TypeVar("Record", bound=JobRecord)


def cancelled(
    table: JobTable[Any, Record],
    record: Record,
    noun: str,
    cancel: Callable[[str], object] | None = None,
) -> Record:
    """The record once it is cancelled, which may have been before; 409 where it is done already.

    cancel: cancels it by its id, where more than its row has to be told.
    """
    (cancel or table.cancel)(record.id)
    current = table.get(record.id)
    assert current is not None
    if current.status != "cancelled":
        raise HTTPException(409, f"the {noun} {standing(current.status)} already")
    return current
