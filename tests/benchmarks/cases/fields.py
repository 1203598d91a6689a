"""Values of a case's free-form fields, in whatever form people wrote them."""

import re
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]


def numbers(value: Any) -> list[float]:
    """Every number in a value: 7, [7, 8], "16+", "2.6B", "2-offload"."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, str):
        return [float(n) for n in re.findall(r"\d+(?:\.\d+)?", value)]
    if isinstance(value, list | tuple):
        return [n for item in value for n in numbers(item)]
    return []


def first_number(fields: Fields, *names: str) -> float | None:
    """The first number under the first of the names that has one."""
    for name in names:
        found = numbers(fields.get(name))
        if found:
            return found[0]
    return None


def whole(fields: Fields, *names: str) -> int | None:
    """The same as a whole number of at least 1."""
    value = first_number(fields, *names)
    return int(value) if value is not None and value >= 1 else None


def text(fields: Fields, *names: str) -> str:
    """The first of the fields that is there, as lower-case text."""
    for name in names:
        if fields.get(name) not in (None, ""):
            return str(fields[name]).lower()
    return ""


def truth(fields: Fields, *names: str) -> bool | None:
    """The first of the fields that is there, as yes or no."""
    for name in names:
        if name in fields:
            value = fields[name]
            if isinstance(value, str):
                return value.lower() not in ("", "none", "false", "off", "no", "0")
            return bool(value)
    return None


def alternatives(fields: Fields, name: str) -> list[Any]:
    """The values of a field that lists several, or the one it has."""
    value = fields.get(name)
    return list(value) if isinstance(value, list) else [value]
