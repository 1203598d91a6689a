"""What the tests of the service share."""

from collections.abc import Iterator

import pytest

from api.store import Store, create_engine, migrate


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A store on an empty database, once of each kind."""
    engine = create_engine(database_url)
    migrate(engine)
    yield Store(engine)
    engine.dispose()
