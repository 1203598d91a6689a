"""Reading and changing nested dictionaries by path."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from planner.check.report import Patch, Path

ABSENT = object()


def get(document: Any, path: Path, default: Any = None) -> Any:
    """The value at a path, or the default."""
    node = document
    for part in path:
        if not isinstance(node, dict) or part not in node:
            return default
        node = node[part]
    return node


def leaves(document: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every key with its value, blocks before what is in them."""
    if not isinstance(document, dict):
        return
    for key, value in document.items():
        inner = (*path, key)
        yield inner, value
        yield from leaves(value, inner)


def apply(document: dict[str, Any], patches: tuple[Patch, ...]) -> dict[str, Any]:
    """A copy with every patch applied; a patch whose place is gone does nothing."""
    out = deepcopy(document)
    for patch in patches:
        if patch.action == "set":
            put(out, patch.path, deepcopy(patch.value))
        elif patch.action == "remove":
            pop(out, patch.path)
        else:
            value = pop(out, patch.path)
            if value is not ABSENT and get(out, patch.to, ABSENT) is ABSENT:
                put(out, patch.to, value)
    return out


def put(document: dict[str, Any], path: Path, value: Any) -> None:
    """Sets a value, making the blocks on the way."""
    node = document
    for part in path[:-1]:
        inner = node.get(part)
        if not isinstance(inner, dict):
            inner = node[part] = {}
        node = inner
    node[path[-1]] = value


def pop(document: dict[str, Any], path: Path) -> Any:
    """Takes a value out; ABSENT where there is none."""
    node = get(document, path[:-1])
    if not isinstance(node, dict):
        return ABSENT
    return node.pop(path[-1], ABSENT)
