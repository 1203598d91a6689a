"""Writes a plan in the formats of the tools that run it."""

from planner.export.ds_config import checked_world_size, ds_config

__all__ = ["checked_world_size", "ds_config"]
