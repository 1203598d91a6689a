"""Why this plan, why not its neighbours."""

from planner.explain.breakdown import StageMemory, memory_by_stage
from planner.explain.why import difference, explain, explained

__all__ = ["StageMemory", "difference", "explain", "explained", "memory_by_stage"]
