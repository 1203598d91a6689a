"""The migrations and the tables say the same, on both databases."""

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from api.store import create_engine, migrate
from api.store.migrate import VERSION_TABLE, config
from api.store.tables import Base


def test_the_migrated_schema_is_that_of_the_tables(database_url: str) -> None:
    engine = create_engine(database_url)
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        differences = compare_metadata(context, Base.metadata)
    engine.dispose()
    assert differences == []


def test_migrating_twice_changes_nothing(database_url: str) -> None:
    engine = create_engine(database_url)
    migrate(engine)
    migrate(engine)
    assert "mw_plan_requests" in sa.inspect(engine).get_table_names()
    engine.dispose()


def test_migrations_can_be_undone(database_url: str) -> None:
    engine = create_engine(database_url)
    migrate(engine)
    with engine.begin() as connection:
        command.downgrade(config(connection), "base")
    assert sa.inspect(engine).get_table_names() == [VERSION_TABLE]
    engine.dispose()


def test_tables_of_others_are_left_alone(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE workflow_status (id INTEGER)"))
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('v3.2.0.a')"))
    migrate(engine)
    names = sa.inspect(engine).get_table_names()
    engine.dispose()
    assert {"workflow_status", "alembic_version", "mw_candidates"} <= set(names)


def test_sqlite_writes_ahead(sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    with engine.connect() as connection:
        assert connection.execute(sa.text("PRAGMA journal_mode")).scalar() == "wal"
    engine.dispose()
