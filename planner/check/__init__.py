"""Reads a ds_config that somebody else wrote, and says what it does, what it does not, and why."""

from planner.check.checker import check
from planner.check.report import Finding, Patch, Report
from planner.check.situation import MODES

__all__ = ["MODES", "Finding", "Patch", "Report", "check"]
