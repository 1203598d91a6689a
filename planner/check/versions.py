"""Version ranges, written as in requirements: ">=0.16.0,<0.16.1"."""

import operator
import re
from collections.abc import Callable
from functools import lru_cache

from planner.check.schema import version_key

_OPERATORS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


@lru_cache(maxsize=4096)
def within(version: str, ranges: str) -> bool:
    """Whether a version lies in every range; an empty text holds for all."""
    for part in filter(None, (p.strip() for p in ranges.split(","))):
        found = re.fullmatch(r"(>=|<=|==|!=|>|<)\s*([\w.+]+)", part)
        if found is None:
            raise ValueError(f"no version range: {part!r}")
        compare = _OPERATORS[found.group(1)]
        if not compare(version_key(version), version_key(found.group(2))):
            return False
    return True
