"""The configuration schema of one DeepSpeed version, as printed from its own classes."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

DEFAULT_VERSION = "0.19.8"


def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers that compare: '0.19.8+cpu' is (0, 19, 8)."""
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+", maxsplit=1)[0])[:3]) or (0,)


@dataclass(frozen=True)
class Block:
    """The keys that one block of the config knows."""

    path: str
    """Dotted, empty for the top level."""
    keys: dict[str, Any]
    """Every accepted spelling, with what the schema says of it."""
    strict: bool
    """Whether the engine refuses a key that it does not know."""
    open: bool
    """Whether the keys are somebody else's (optimizer parameters)."""


@dataclass(frozen=True)
class Schema:
    """What one version of DeepSpeed reads."""

    version: str
    top: dict[str, Any]
    models: dict[str, Any]
    removed: frozenset[str]
    """Top-level keys that this version refuses by name."""
    removed_zero: frozenset[str]

    def block(self, path: tuple[str, ...]) -> Block | None:
        """The block at a path; None where the schema has no block there."""
        return _block(self.version, path)

    def find_block(self, path: tuple[str, ...]) -> Block | None:
        """As `block`, without its cache."""
        node: dict[str, Any] = self.top
        for i, part in enumerate(path):
            inner = _step(node, part, self.models)
            if inner is None:
                return None
            if inner.get("open"):
                return Block(".".join(path[: i + 1]), {}, strict=False, open=True)
            node = inner
        return self._as_block(".".join(path), node)

    def _as_block(self, path: str, node: dict[str, Any]) -> Block:
        if "fields" in node:
            keys = {}
            for name, field in node["fields"].items():
                keys[name] = field
                if "alias" in field:
                    keys[field["alias"]] = field
            return Block(path, keys, strict=True, open=False)
        keys = {}
        for name, entry in node["keys"].items():
            block = entry.get("block")
            kind = {"model": block["model"]} if block and "model" in block else None
            keys[name] = {"default": entry["default"], "type": kind or ("dict" if block else None)}
        return Block(path, keys, strict=False, open=False)

    def field(self, path: tuple[str, ...]) -> dict[str, Any] | None:
        """What the schema says of the key at a path; None for an unknown key."""
        block = self.block(path[:-1])
        return None if block is None else block.keys.get(path[-1])

    @property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """Every known key: dotted path to its parts. Built once per version."""
        return _paths(self.version)


def _step(node: dict[str, Any], part: str, models: dict[str, Any]) -> dict[str, Any] | None:
    if "fields" in node:
        for name, field in node["fields"].items():
            if part in (name, field.get("alias")):
                inner = model_of(field["type"])
                return models[inner] if inner else None
        return None
    entry = node["keys"].get(part)
    if not entry or not entry.get("block"):
        return None
    block: dict[str, Any] = entry["block"]
    found: dict[str, Any] = models[block["model"]] if "model" in block else block
    return found


def model_of(kind: Any) -> str | None:
    """The name of the model that a type holds, through optionals."""
    if isinstance(kind, dict):
        if "model" in kind:
            return str(kind["model"])
        if "optional" in kind:
            return model_of(kind["optional"])
    return None


@cache
def versions() -> tuple[str, ...]:
    """Versions that there is a schema of, oldest first."""
    names = [f.name.removesuffix(".json") for f in _folder().iterdir() if f.name.endswith(".json")]
    return tuple(sorted(names, key=version_key))


def nearest(version: str) -> str:
    """The newest known version that is not newer than the asked one; else the oldest."""
    older = [v for v in versions() if version_key(v) <= version_key(version)]
    return older[-1] if older else versions()[0]


@lru_cache(maxsize=64)
def load(version: str = DEFAULT_VERSION) -> Schema:
    """The schema of the nearest known version."""
    text = (_folder() / f"{nearest(version)}.json").read_text("utf-8")
    raw = json.loads(text)
    return Schema(
        raw["deepspeed"],
        raw["top"],
        raw["models"],
        frozenset(raw["removed"]),
        frozenset(raw["removed_zero"]),
    )


def _folder() -> Any:
    return files("planner.check") / "data" / "schemas"


@cache
def _paths(version: str) -> dict[str, tuple[str, ...]]:
    schema = load(version)

    def walk(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        block = schema.block(path)
        if block is None or len(path) > 5:
            return
        for key in block.keys:
            yield (*path, key)
            yield from walk((*path, key))

    return {".".join(p): p for p in walk(())}


@lru_cache(maxsize=4096)
def _block(version: str, path: tuple[str, ...]) -> Block | None:
    return load(version).find_block(path)


@lru_cache(maxsize=4096)
def known_in(path: str) -> tuple[str, ...]:
    """Versions whose schema knows a dotted key, oldest first."""
    return tuple(v for v in versions() if path in _paths(v))
