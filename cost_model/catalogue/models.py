"""Models by name: each preset is a compact config.json with its source, read like any other."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from cost_model.specs.architectures import from_config
from cost_model.specs.model import ModelSpec


@cache
def _table() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        files(__package__).joinpath("models.json").read_text("utf-8")
    )
    return found


def model_names() -> tuple[str, ...]:
    """Names of the models in the catalogue."""
    return tuple(sorted(_table()))


@cache
def _repositories() -> dict[str, str]:
    """The preset of each repository that a source names, such as meta-llama/Llama-2-7b-hf."""
    found = {}
    for name, entry in _table().items():
        repository = str(entry["source"]).removeprefix("config.json of ").lower()
        found[repository] = name
    return found


def _pick(name: str) -> dict[str, Any]:
    key = name.lower()
    try:
        return _table()[_repositories().get(key, key)]
    except KeyError:
        known = ", ".join(model_names())
        raise KeyError(f"no model named {name!r}; known: {known}") from None


def model_config(name: str) -> dict[str, Any]:
    """The config.json of a preset; KeyError names the known ones."""
    return dict(_pick(name)["config"])


def model_source(name: str) -> str:
    """Where the geometry of a preset comes from."""
    return str(_pick(name)["source"])


@cache
def model(name: str) -> ModelSpec:
    """The model of that name, or of the repository it was published in.

    KeyError names the known ones.
    """
    return from_config(model_config(name)).model_copy(update={"name": name.lower()})
