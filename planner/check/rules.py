"""Combinations that are refused, do nothing or go wrong: data, and the reader of its conditions."""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from planner.check import edit, schema
from planner.check.reader import Placeholder
from planner.check.report import Finding, Patch, Path, Severity
from planner.check.situation import Situation
from planner.check.versions import within

CONDITION = re.compile(r"(?P<path>[\w.]+)\s+(?P<op>=|!=|<=|>=|<|>|in|is|has)\s+(?P<value>.+)\Z")
TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b) and isinstance(a, bool) == isinstance(b, bool),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: _number(a) and bool(a < b),
    "<=": lambda a, b: _number(a) and bool(a <= b),
    ">": lambda a, b: _number(a) and bool(a > b),
    ">=": lambda a, b: _number(a) and bool(a >= b),
    "in": lambda a, b: bool(a in b),
    "has": lambda a, b: isinstance(a, str) and bool(b.lower() in a.lower()),
}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Condition:
    """`path op value`; a path beginning with run, model, gpu or package asks the situation."""

    path: Path
    op: str
    value: Any

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """From `zero_optimization.stage < 3`, or `… is set`, `… is unset`, `… is on`."""
        found = CONDITION.match(text.strip())
        if found is None:
            raise ValueError(f"no condition: {text!r}")
        value = found["value"].strip()
        parsed = value if found["op"] in ("is", "has") else json.loads(value)
        return cls(tuple(found["path"].split(".")), found["op"], parsed)

    def holds(self, document: dict[str, Any], situation: Situation, known: schema.Schema) -> bool:
        """Whether it is so; a template's placeholder satisfies nothing."""
        value = self._look_up(document, situation, known)
        if isinstance(value, Placeholder):
            return False
        if self.op != "is":
            try:
                return TESTS[self.op](value, self.value)
            except TypeError:
                return False
        if self.value in ("set", "unset"):
            there = value is not None and value is not edit.ABSENT
            return bool(there == (self.value == "set"))
        on = bool(value) and value != "auto" and value is not edit.ABSENT
        return bool(on == (self.value == "on"))

    def _look_up(self, document: dict[str, Any], situation: Situation, known: schema.Schema) -> Any:
        head, *rest = self.path
        if head in ("run", "model", "gpu", "package", "trainer"):
            return _ask(situation, document, head, ".".join(rest))
        value = edit.get(document, self.path, edit.ABSENT)
        if value is edit.ABSENT and self.op == "is" and self.value in ("set", "unset"):
            return None
        if value is edit.ABSENT:
            value = _by_alias(document, self.path)
        if value is edit.ABSENT or value == "auto":
            field = known.field(self.path) or {}
            return field.get("default") if value is edit.ABSENT or self.op != "=" else value
        if isinstance(value, str) and value.isdigit() and self.path[-1] == "stage":
            return int(value)
        return value


def _by_alias(document: dict[str, Any], path: Path) -> Any:
    last = path[-1]
    other = last.removeprefix("stage3_") if last.startswith("stage3_") else f"stage3_{last}"
    return edit.get(document, (*path[:-1], other), edit.ABSENT)


def _ask(situation: Situation, document: dict[str, Any], head: str, name: str) -> Any:  # noqa: PLR0911
    if head == "package":
        version = situation.packages.get(name)
        return list(schema.version_key(version)) if version else None
    if head == "trainer":
        return (situation.trainer or {}).get(name)
    if head == "model":
        model = situation.model
        if name == "name":
            return (model.name if model else None) or situation.facts.get("model_name")
        if model is None:
            return None
        return {"moe": model.is_moe, "trained_in": model.trained_in}.get(name)
    if head == "gpu":
        if situation.cluster is None:
            return None
        gpu = situation.cluster.node.gpu
        return {"bf16": gpu.bf16_tflops is not None, "name": gpu.name}.get(name)
    if name == "mode":
        return situation.mode
    if name == "nodes":
        return situation.cluster.nodes if situation.cluster else None
    if name == "world_size":
        return situation.world_size
    return situation.facts.get(name)


@dataclass(frozen=True)
class Rule:
    """One piece of knowledge about a combination."""

    code: str
    severity: Severity
    path: str
    when: tuple[Condition, ...]
    versions: str
    packages: tuple[tuple[str, str], ...]
    reason: str
    mend: str
    evidence: str
    patches: tuple[Patch, ...]

    def applies(self, document: dict[str, Any], situation: Situation, known: schema.Schema) -> bool:
        """Whether every condition holds for the run's versions."""
        if not within(situation.version, self.versions):
            return False
        for package, ranges in self.packages:
            version = situation.packages.get(package)
            if version is None or not within(version, ranges):
                return False
        return all(c.holds(document, situation, known) for c in self.when)

    def finding(self) -> Finding:
        """The finding, with its evidence and version range."""
        versions = f" [DeepSpeed {self.versions}]" if self.versions else ""
        return Finding(
            self.severity,
            self.code,
            self.path,
            f"{self.reason} ({self.evidence}){versions}",
            self.mend,
            self.patches,
        )


def _patch(text: str) -> Patch:
    words = text.split(None, 3)
    path = tuple(words[1].split("."))
    if words[0] == "remove":
        return Patch("remove", path)
    if words[0] == "move":
        return Patch("move", path, to=tuple(words[3].split(".")))
    return Patch("set", path, json.loads(" ".join(words[3:])))


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule of the data file, in its order."""
    text = (files("planner.check") / "data" / "rules.toml").read_text("utf-8")
    return tuple(
        Rule(
            row["code"],
            row["severity"],
            row["path"],
            tuple(Condition.parse(c) for c in row["when"]),
            row.get("versions", ""),
            tuple(row.get("packages", {}).items()),
            row["reason"],
            row["mend"],
            row["evidence"],
            tuple(_patch(p) for p in row.get("patch", ())),
        )
        for row in tomllib.loads(text)["rule"]
    )


def check(document: dict[str, Any], situation: Situation) -> list[Finding]:
    """Findings of every rule that applies."""
    known = schema.load(situation.version)
    return [r.finding() for r in rules() if r.applies(document, situation, known)]
