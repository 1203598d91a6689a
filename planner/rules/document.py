"""Prints docs/rules.md: `python -m planner.rules.document > docs/rules.md`."""

from planner.rules import RULES, combination, placement, shape, states
from planner.rules.rule import Rule

_SECTIONS = (
    ("Sizes and degrees", shape.RULES),
    ("Groups of different nodes", placement.RULES),
    ("Combinations", combination.RULES),
    ("ZeRO, offload and precision", states.RULES),
)

_INTRODUCTION = """\
# Rules

A plan is legal where it keeps every rule below. The search masks with them, the check of a config
reports them, and this page is printed from them (`python -m planner.rules.document`).

- **refused**: the engine raises; the place is a file and line of DeepSpeed 0.19.8, or the file of
  another software.
- **silent**: the engine accepts it, and then ignores the knob or trains something else.
- **planner**: it would run, but the plan is a duplicate of another one or outside what is modelled.
"""


def _row(rule: Rule) -> str:
    says = rule.says.replace("|", "\\|")
    reads = ", ".join(rule.reads)
    return f"| `{rule.name}` | {rule.kind} | {says} | {reads} | {rule.enforced_at} |"


def document() -> str:
    """The whole page."""
    lines = [_INTRODUCTION]
    for title, rules in _SECTIONS:
        lines += [f"## {title}", ""]
        lines += ["| rule | kind | what it says | decided by | where |", "|---|---|---|---|---|"]
        lines += [_row(rule) for rule in rules]
        lines.append("")
    lines.append(f"{len(RULES)} rules.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(document(), end="")
