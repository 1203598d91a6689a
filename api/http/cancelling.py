"""Cancels what a job works on."""

from typing import Any, TypeVar

from fastapi import HTTPException

from api.store.jobs import JobTable
from api.store.records import JobRecord
from api.wording import standing

Record = TypeVar("Record", bound=JobRecord)


def cancelled(table: JobTable[Any, Record], record: Record, noun: str) -> Record:
    """The record once it is cancelled, which may have been before; 409 where it is done already."""
    table.cancel(record.id)
    current = table.get(record.id)
    assert current is not None
    if current.status != "cancelled":
        raise HTTPException(409, f"the {noun} {standing(current.status)} already")
    return current
