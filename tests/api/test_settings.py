"""Settings come from the environment and say what is wrong with it."""

from pathlib import Path

import pytest

from api.settings import Settings, SettingsError
from api.store import create_engine


def test_without_an_environment_the_database_is_a_file_under_var() -> None:
    settings = Settings.from_environment({})
    assert (settings.host, settings.port) == ("127.0.0.1", 8321)
    assert settings.url == f"sqlite:///{Path('var/meshwright.db').resolve()}"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_way_to_write_postgresql_takes_the_installed_driver(scheme: str) -> None:
    url = Settings(database_url=f"{scheme}://me@host/db").url
    assert url == "postgresql+psycopg://me@host/db"


@pytest.mark.parametrize(
    "environment",
    [
        {"MESHWRIGHT_PORT": "70000"},
        {"MESHWRIGHT_PORT": "http"},
        {"MESHWRIGHT_SEARCH_WORKERS": "0"},
        {"MESHWRIGHT_LEASE_SECONDS": "soon"},
    ],
)
def test_a_bad_value_names_its_variable(environment: dict[str, str]) -> None:
    name = next(iter(environment))
    with pytest.raises(SettingsError, match=name):
        Settings.from_environment(environment)


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "sqlite:///:memory:", "nonsense"])
def test_a_database_that_cannot_keep_jobs_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="MESHWRIGHT_DATABASE_URL"):
        create_engine(url)
