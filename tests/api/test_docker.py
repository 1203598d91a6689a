"""No Docker engine runs where the tests run: the images are held to what make and CI do."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from api.settings import Settings

ROOT = Path(__file__).parents[2]
IMAGES = {"service": {"postgres"}, "worker": {"trials"}}
"""Extras of each image."""


def _instructions(name: str) -> list[tuple[str, str]]:
    text = (ROOT / "docker" / f"{name}.Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [line.split(maxsplit=1) for line in lines if not line.startswith(" ")]
    return [(word, rest) for word, rest in found]


def _installs(text: str) -> list[tuple[bool, set[str]]]:
    """Of each pip install of this project: whether it is constrained, and its extras."""
    found = re.findall(r"pip install ([^&\n]*?)(?:-e )?'\.\[([a-z,]+)\]'", text)
    return [("-c constraints.txt" in flags, set(extras.split(","))) for flags, extras in found]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_installs_as_make_does(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    of_make: set[str] = set().union(*(extras for _, extras in _installs(makefile)))
    assert all(constrained for constrained, _ in _installs(makefile))
    steps = "\n".join(rest for word, rest in _instructions(name) if word == "RUN")
    assert _installs(steps) == [(True, IMAGES[name])]
    assert IMAGES[name] <= of_make


def test_the_service_image_installs_just_what_make_run_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    core = makefile.split("$(VENV)/.dev:")[0]
    assert _installs(core) == [(True, IMAGES["service"])]


def test_the_service_image_has_no_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["postgres"]
    assert not [d for d in wanted if d.startswith(("torch", "deepspeed", "transformers"))]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_copies_every_package_and_runs_without_root(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    steps = _instructions(name)
    copied = {part for word, rest in steps if word == "COPY" for part in rest.split()}
    assert packages | {"pyproject.toml", "constraints.txt"} <= copied
    words = [word for word, _ in steps]
    last_user = [rest for word, rest in steps if word == "USER"][-1]
    assert last_user not in {"root", "0"}
    assert words.index("USER") < max(words.index(w) for w in ("CMD", "ENTRYPOINT") if w in words)


def test_the_python_of_the_service_image_is_one_that_the_project_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least = project["requires-python"].removeprefix(">=")
    base = dict(_instructions("service"))["FROM"]
    assert base == f"python:{least}-slim"


def test_the_service_image_sets_what_the_settings_read() -> None:
    line = next(rest for word, rest in _instructions("service") if word == "ENV")
    environment = dict(pair.split("=", 1) for pair in line.split())
    settings = Settings.from_environment(environment)
    exposed = next(rest for word, rest in _instructions("service") if word == "EXPOSE")
    assert settings.host == "0.0.0.0"
    assert str(settings.port) == exposed


def test_compose_gives_the_service_its_database_and_no_default_password() -> None:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    service, database = compose["services"]["service"], compose["services"]["database"]
    url = service["environment"]["MESHWRIGHT_DATABASE_URL"]
    assert Settings(database_url=url).url.startswith("postgresql+psycopg://meshwright:")
    assert "@database/meshwright" in url
    assert database["environment"]["POSTGRES_PASSWORD"].startswith("${MESHWRIGHT_DB_PASSWORD:?")
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
