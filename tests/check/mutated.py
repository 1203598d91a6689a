"""Mutated configs: real keys with wrong values in wrong places, and texts with slips of writing."""

import json
from typing import Any

from hypothesis import strategies as st

from planner.check import schema

PATHS = sorted(schema.load().paths.values())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from(["auto", "5e8", "3", "cpu", "nvme", "true", "", "fp16", "${x}", "AdamW"]),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=5,
)
SLIPS = (
    ("true", "True"), ('"', "'"), ("}", ",}"), (",", ""), ("{", "{ // note\n"), (":", ""),
    ("}", ""),
    ("null", "None"), ("1", "1_0"), ("\n", "\n# x\n"), ('"', "“"), ("[", "[,"), ("{", "{%if%}{"),
)  # fmt: skip


def _put(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    node = document
    for part in path[:-1]:
        inner = node.get(part)
        if not isinstance(inner, dict):
            inner = node[part] = {}
        node = inner
    node[path[-1]] = value


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A config whose keys exist or nearly do, with any values."""
    document: dict[str, Any] = {"train_batch_size": 8} if draw(st.integers(0, 3)) else {}
    for path in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=8)):
        key = path[-1]
        if draw(st.integers(0, 9)) == 0:
            key = key[:-1] + draw(st.sampled_from(["", "s", " ", "_x"]))
        _put(document, (*path[:-1], key), draw(VALUES))
    return document


@st.composite
def texts(draw: st.DrawFn) -> str:
    """The same as text, with slips of writing."""
    text = json.dumps(draw(documents()), indent=draw(st.sampled_from([None, 1])))
    for old, new in draw(st.lists(st.sampled_from(SLIPS), max_size=3)):
        count = draw(st.integers(1, 3))
        text = text.replace(old, new, count)
    cut = draw(st.integers(0, 30))
    return text[:-cut] if cut and draw(st.booleans()) else text
