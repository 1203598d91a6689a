"""Fields of a request as text spells them, and by their path where nothing has a place for them."""

import copy
import json
from collections.abc import Iterable
from typing import Any

from planner.errors import Problem, RequestError

WANTED = "write path=value, such as training.matmul_precision=fp8"


def whole(text: str) -> Any:
    """A whole number, also written as 300e9 or 1,000; other text is left for the request to refuse,
    a fraction too."""
    bare = text.strip().replace(",", "")
    try:
        return int(bare)
    except ValueError:
        pass
    try:
        number = float(bare)
    except ValueError:
        return text
    return int(number) if number.is_integer() else text


def with_fields(request: dict[str, Any], pairs: Iterable[str], pointer: str) -> dict[str, Any]:
    """The request with `training.matmul_precision=fp8` and the like set.

    Values are JSON where they can be read so, else text. RequestError names `pointer` for a pair
    that is none, for a path through what is no object, and for one that is given twice.
    """
    made = copy.deepcopy(request)
    seen: set[str] = set()
    for pair in pairs:
        path, sign, text = pair.partition("=")
        names = [name.strip() for name in path.split(".")]
        if not sign or not all(names):
            raise RequestError([Problem(pointer, f"got {pair!r}", WANTED)])
        if path.strip() in seen:
            raise RequestError([Problem(pointer, f"{path.strip()} twice", "give it once")])
        seen.add(path.strip())
        place = made
        for name in names[:-1]:
            if place.get(name) is None:
                place[name] = {}
            if not isinstance(place[name], dict):
                given = f"{path.strip()}, and {name} is {place[name]!r}"
                raise RequestError([Problem(pointer, given, WANTED)])
            place = place[name]
        place[names[-1]] = _value(text.strip())
    return made


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
