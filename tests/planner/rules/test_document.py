from pathlib import Path

from planner.rules import RULES
from planner.rules.document import document

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"


def test_the_page_is_printed_from_the_rules() -> None:
    assert PAGE.read_text("utf-8") == document()


def test_no_two_rules_have_one_name() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
