"""JSON in which no key is given twice: readers keep the last one and say nothing.

RFC 8259, section 4, leaves what such a body means to whoever reads it.
"""

import json
from collections import Counter
from typing import Any

from planner.errors import Problem, RequestError
from planner.request.pointers import pointer


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys came again."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.repeated = {key: count for key, count in counts.items() if count > 1}


def _problems(value: Any, at: str) -> list[Problem]:
    found: list[Problem] = []
    left: list[tuple[str, Any]] = [(at, value)]
    while left:
        where, one = left.pop()
        if isinstance(one, _Object):
            found += [
                Problem(where + pointer(key), f"the key is given {count} times", "give it once")
                for key, count in one.repeated.items()
            ]
            left += [(where + pointer(key), below) for key, below in one.items()]
        elif isinstance(one, list):
            left += [(where + pointer(number), below) for number, below in enumerate(one)]
    return found


def parsed_json(text: str | bytes, at: str = "") -> Any:
    """The value of a JSON text; RequestError for keys given twice, ValueError for no JSON.

    at: pointer of the value in the request, before the keys' own.
    """
    value = json.loads(text, object_pairs_hook=_Object)
    problems = _problems(value, at)
    if problems:
        raise RequestError(problems)
    return value
