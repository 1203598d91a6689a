"""docs/check.md names every kind of finding, and its first example is what is printed."""

import re
from pathlib import Path

from typer.testing import CliRunner

from api.cli.main import app
from planner.check.rules import rules
from planner.check.schema import versions

DOCS = Path(__file__).parents[2] / "docs" / "check.md"


def test_every_rule_is_named() -> None:
    text = DOCS.read_text("utf-8")
    assert [r.code for r in rules() if f"`{r.code}`" not in text] == []


def test_every_version_with_a_schema_is_named() -> None:
    text = DOCS.read_text("utf-8")
    assert [v for v in versions() if v not in text] == []


def test_the_first_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    text = DOCS.read_text("utf-8")
    config, output = re.findall(r"```\n(.*?)\n```", text, re.DOTALL)[:2]
    file = tmp_path / "typo.json"
    file.write_text(config)
    command, shown = output.split("\n", 1)
    words = command.split()[2:]
    words[words.index("typo.json")] = str(file)
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 1
    assert ran.output.strip() == shown.strip()
