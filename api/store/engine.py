"""Opens the database."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from api.settings import SettingsError


def create_engine(url: str) -> sa.Engine:
    """An engine for SQLite (write-ahead log) or PostgreSQL.

    Raises SettingsError for any other database: nothing here was tried on one.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise SettingsError(f"MESHWRIGHT_DATABASE_URL cannot be read: {error}") from error
    dialect = parsed.get_backend_name()
    if dialect == "sqlite":
        return _sqlite(parsed)
    if dialect == "postgresql":
        return sa.create_engine(parsed, pool_pre_ping=True)
    raise SettingsError(
        f"MESHWRIGHT_DATABASE_URL names {dialect}; sqlite:///path or postgresql://... would do"
    )


def _sqlite(url: sa.URL) -> sa.Engine:
    if not url.database or url.database == ":memory:":
        raise SettingsError(
            "MESHWRIGHT_DATABASE_URL is a database in memory, which forgets its jobs when the "
            "process ends; sqlite:///path would do"
        )
    Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(url)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # IMMEDIATE takes the write lock at the start of a writing transaction: two writers wait
        # for each other instead of failing half-way with "database is locked".
        connection.isolation_level = "IMMEDIATE"
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA busy_timeout=30000")
        connection.execute("PRAGMA foreign_keys=ON")

    return engine
