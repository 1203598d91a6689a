"""All legal plans of a model on a cluster."""

from planner.space.axes import AXES, Axes, axes, software_allowed
from planner.space.enumerate import Block, Bound, enumerate_plans, enumerate_software

__all__ = [
    "AXES",
    "Axes",
    "Block",
    "Bound",
    "axes",
    "enumerate_plans",
    "enumerate_software",
    "software_allowed",
]
