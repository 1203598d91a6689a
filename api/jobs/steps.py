"""Steps of durable jobs."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dbos import DBOS
from sqlalchemy.exc import SQLAlchemyError

P = ParamSpec("P")
R = TypeVar("R")


def step(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A step that is tried again where the database failed, and there alone."""
    return DBOS.step(name=name, retries_allowed=True, max_attempts=5, should_retry=_database_failed)


def _database_failed(error: BaseException) -> bool:
    return isinstance(error, SQLAlchemyError)
