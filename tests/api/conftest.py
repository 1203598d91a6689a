"""What the tests of the service share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from api.store import Store, create_engine, migrate


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A store on an empty database, once of each kind."""
    engine = create_engine(database_url)
    migrate(engine)
    yield Store(engine)
    engine.dispose()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The service on SQLite, with its jobs."""
    settings = Settings(var=tmp_path_factory.mktemp("var"), max_body_bytes=100_000, local_ranks=2)
    with TestClient(create_app(settings), raise_server_exceptions=False) as served:
        yield served


@pytest.fixture
def client_on(database_url: str, tmp_path: Path) -> Iterator[TestClient]:
    """The service with its jobs, once on each kind of database."""
    with TestClient(create_app(Settings(database_url=database_url, var=tmp_path))) as served:
        yield served
