"""Slips of writing: what is read in spite of them, where they are, what was meant."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.check import check
from planner.check.reader import read
from tests.check.mutated import texts


@pytest.mark.parametrize(
    ("text", "value", "code", "line", "column"),
    [
        ('{"a": 1,}', {"a": 1}, "trailing-comma", 1, 8),
        ('{"a": True}', {"a": True}, "python-word", 1, 7),
        ('{"a": None}', {"a": None}, "python-word", 1, 7),
        ("{'a': 1}", {"a": 1}, "quotes", 1, 2),
        ("{“a”: 1}", {"a": 1}, "quotes", 1, 2),
        ('{"a": 1\n "b": 2}', {"a": 1, "b": 2}, "missing-comma", 1, 8),
        ('{\n  // why\n  "a": 1}', {"a": 1}, "comment", 2, 3),
        ('{"a": 1 /* b */}', {"a": 1}, "comment", 1, 9),
        ('{"a": 1, "a": 2}', {"a": 2}, "duplicate-key", 1, 10),
        ('{"a": 5_000}', {"a": 5000}, "number-form", 1, 7),
        ('{"a": .5}', {"a": 0.5}, "number-form", 1, 7),
        ('{"a": NaN}', {"a": None}, "not-a-number", 1, 7),
        ('{"a": {"b": 1}', {"a": {"b": 1}}, "unclosed", 1, 1),
        ("a: 1", {"a": 1}, "no-braces", 1, 1),
        ('{"a": GBSIZE}', {"a": "GBSIZE"}, "template", 1, 7),
        ('{"a": ${size}}', {"a": "${size}"}, "template", 1, 7),
        ('```json\n{"a": 1}\n```', {"a": 1}, "surrounding-text", 1, 1),
        ('config = {"a": 1}', {"a": 1}, "surrounding-text", 1, 1),
    ],
)
def test_a_slip_is_read_over_and_told_with_its_place(
    text: str, value: object, code: str, line: int, column: int
) -> None:
    document = read(text)
    assert document.value == value
    first = next(s for s in document.slips if s.code == code)
    assert (first.line, first.column) == (line, column)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
@settings(max_examples=150, deadline=None)
def test_what_is_json_is_read_as_json_and_without_a_slip(value: object) -> None:
    document = read(json.dumps({"value": value}))
    assert document.value == {"value": value}
    assert not document.slips


@given(st.text(alphabet="{}[]\",:'#/\\ \nabTN1.-e$%“", max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_text_makes_the_check_crash(text: str) -> None:
    report = check(text)
    assert report.engine_accepts or report.has_error
    json.dumps(report.to_json(), allow_nan=False)


@given(texts())
@settings(max_examples=200, deadline=None)
def test_no_mutated_config_makes_the_check_crash(text: str) -> None:
    report = check(text, world_size=8)
    assert report.engine_accepts or report.has_error
    json.dumps(report.to_json(), allow_nan=False)


def test_a_thousand_levels_are_refused_and_not_followed() -> None:
    report = check('{"a":' * 1000 + "1" + "}" * 1000)
    assert any(f.code == "syntax-too-deep" for f in report.findings)
