"""Slips of writing as findings: who reads the file in spite of them, and who does not."""

from planner.check.reader import Document, Slip
from planner.check.report import Finding, Severity

READ_BY_HJSON = frozenset(
    {"comment", "trailing-comma", "quotes", "bare-key", "no-braces", "missing-comma"}
)
"""DeepSpeed reads files as Hjson, which has these; HF Trainer and Accelerate read JSON."""


def findings(document: Document, *, readable: bool) -> list[Finding]:
    """One finding per slip; repeated slips of a kind are counted in the first."""
    found: list[Finding] = []
    by_code: dict[str, list[Slip]] = {}
    for slip in document.slips:
        by_code.setdefault(slip.code, []).append(slip)
    for code, slips in by_code.items():
        first = slips[0]
        severity: Severity = "warning" if code in READ_BY_HJSON and readable else "error"
        places = ", ".join(f"line {s.line}, column {s.column}" for s in slips[:20])
        more = f" and {len(slips) - 20} more" if len(slips) > 20 else ""
        who = ""
        if severity == "warning" and code != "comment":
            who = "; DeepSpeed's own reader (Hjson) takes it, HF Trainer and Accelerate do not"
        found.append(
            Finding(
                severity,
                _code(code),
                ".".join(first.path),
                f"{places}{more}: {first.what}{who}",
                first.meant,
            )
        )
    return found


def _code(code: str) -> str:
    if code in ("duplicate-key",):
        return code
    return "template-placeholder" if code == "template" else f"syntax-{code}"
