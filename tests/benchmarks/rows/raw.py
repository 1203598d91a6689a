"""One line of a CSV of measurements, as typed values. Blank is unknown."""

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_UNKNOWN = {"", "na", "n/a", "nan", "none", "null", "?", "-"}


@dataclass(frozen=True)
class RawRow:
    """Named cells of one row; a column that the file lacks is a blank cell."""

    cells: Mapping[str, str]
    _args: dict[str, Any] = field(default_factory=dict, compare=False)

    def text(self, name: str) -> str:
        """The cell, stripped; empty where unknown."""
        return (self.cells.get(name) or "").strip()

    def number(self, name: str) -> float | None:
        """The cell as a number; None where it is blank or no number."""
        cell = self.text(name)
        if cell.lower() in _UNKNOWN:
            return None
        try:
            found = float(re.sub(r"(?<=\d),(?=\d{3}\b)", "", cell))
        except ValueError:
            return None
        return found if math.isfinite(found) else None

    def integer(self, name: str) -> int | None:
        """The cell as a whole number of at least 1, or None."""
        value = self.number(name)
        return int(value) if value is not None and value >= 1 and value == int(value) else None

    def flag(self, name: str) -> bool | None:
        """The cell as 0 or 1 (or the words for them), or None."""
        word = self.text(name).lower()
        if word in _WORDS:
            return _WORDS[word]
        value = self.number(name)
        return None if value is None else value != 0

    @property
    def notes(self) -> str:
        """What the collector of the row wrote about it."""
        return self.text("notes")

    @property
    def arguments(self) -> dict[str, Any]:
        """Command-line arguments that the notes carry as `args={...}` (JSON)."""
        if not self._args:
            found = re.search(r"args=(\{.*?\})(?:;|$)", self.notes)
            try:
                parsed = json.loads(found.group(1)) if found else {}
            except json.JSONDecodeError:
                parsed = {}
            self._args.update(parsed if parsed else {"": None})
        return {name: value for name, value in self._args.items() if name}

    @property
    def zero_stage(self) -> int | None:
        """The stage of ZeRO, also where it is written `ZeRO-2`; None where blank."""
        found = re.fullmatch(r"(?:zero)?[- _]?([0-3])(?:\.0)?", self.text("zero_stage").lower())
        return int(found.group(1)) if found else None

    @property
    def year(self) -> int | None:
        """The year of the run, where the row's notes or the page that it cites carry a date."""
        text = f"{self.notes} {self.text('url')}"
        found = re.search(r"(?<!\d)(20[12]\d)[-_]?(?:0[1-9]|1[0-2])(?!\d)", text)
        return int(found.group(1)) if found else None

    def note(self, key: str) -> str:
        """The value of `key=value` in the notes, up to the next semicolon; empty if absent."""
        found = re.search(rf"(?:^|;|\s){re.escape(key)}=([^;]*)", self.notes)
        return found.group(1).strip() if found else ""


def read_csv(path: Path) -> Iterator[RawRow]:
    """Every row of one file; the case of its column names and spaces around them do not matter."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
        for cells in csv.DictReader(lines):
            named = ((k.strip().lower(), v or "") for k, v in cells.items() if isinstance(k, str))
            yield RawRow(dict(named))
