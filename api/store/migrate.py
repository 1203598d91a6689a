"""Brings the database to the schema of this version."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

VERSION_TABLE = "mw_schema_version"
"""Own name: others that use Alembic in the same database keep theirs in alembic_version."""


def config(connection: sa.Connection | None = None) -> Config:
    """Alembic's configuration, without a file."""
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    settings.attributes["connection"] = connection
    return settings


def migrate(engine: sa.Engine) -> None:
    """Applies what is missing; two processes that start at once do not race."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(6374215887)"))
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        command.upgrade(config(connection), "head")
