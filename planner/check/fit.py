"""Does it fit: the plan that a config means, and what the cost model says of it."""

from typing import Any

from planner.check.report import Finding
from planner.check.situation import Situation


def check(document: dict[str, Any], situation: Situation, seq_len: int | None) -> list[Finding]:
    """Findings about memory; empty where the model or the cluster is not known."""
    return []
