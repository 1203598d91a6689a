"""Keys of zero_optimization that the chosen stage does not read."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from planner.check import edit
from planner.check.report import Finding, Patch
from planner.check.situation import Situation

ALWAYS_THERE = {"overlap_comm": False, "round_robin_gradients": False}


@cache
def _groups() -> tuple[dict[str, Any], ...]:
    text = (files("planner.check") / "data" / "rules.toml").read_text("utf-8")
    return tuple(tomllib.loads(text)["only_at"])


def stage_of(document: dict[str, Any]) -> int | None:
    """The ZeRO stage as the engine takes it; None where it cannot be told."""
    block = document.get("zero_optimization", {})
    if isinstance(block, bool):
        return int(block)
    value = block.get("stage", 0) if isinstance(block, dict) else 0
    if value == "auto":
        return 0
    if isinstance(value, str) and value.strip() in ("0", "1", "2", "3"):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value in (0, 1, 2, 3) else None


def check(document: dict[str, Any], situation: Situation) -> list[Finding]:
    """Findings about keys that do nothing at this stage."""
    stage = stage_of(document)
    block = edit.get(document, ("zero_optimization",))
    if stage is None or not isinstance(block, dict):
        return []
    found = []
    for group in _groups():
        if stage in group["stages"]:
            continue
        for key in group["keys"]:
            if key not in block or block[key] in (False, None):
                continue
            path = ("zero_optimization", key)
            stages = " and ".join(str(s) for s in group["stages"])
            found.append(
                Finding(
                    group["severity"],
                    "no-effect-at-stage",
                    ".".join(path),
                    f"{key} does nothing at stage {stage}; it is for stage {stages} "
                    f"({group['evidence']})",
                    f"drop it, or use stage {group['stages'][-1]}",
                    (Patch("remove", path),),
                )
            )
    return found
