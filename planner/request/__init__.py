"""What the user asks: a model, a cluster, a training run, and how to search."""

from planner.request.cluster import ClusterRequest
from planner.request.model import ModelRequest
from planner.request.request import PlanRequest, PredictRequest, Resolved
from planner.request.search import Allow, Limit, SearchOptions
from planner.request.training import TrainingRequest

__all__ = [
    "Allow",
    "ClusterRequest",
    "Limit",
    "ModelRequest",
    "PlanRequest",
    "PredictRequest",
    "Resolved",
    "SearchOptions",
    "TrainingRequest",
]
