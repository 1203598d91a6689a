"""Why this plan, why not its neighbours, and how the answer changes."""

from planner.explain.around import Around, Improvement, around
from planner.explain.breakdown import StageMemory, memory_by_stage
from planner.explain.what_if import WhatIf, what_if
from planner.explain.why import difference, explain, explained
from planner.explain.why_not import WhyNot, partial_plan, why_not

__all__ = [
    "Around",
    "Improvement",
    "StageMemory",
    "WhatIf",
    "WhyNot",
    "around",
    "difference",
    "explain",
    "explained",
    "memory_by_stage",
    "partial_plan",
    "what_if",
    "why_not",
]
