"""Kernel times: matrix products by shape, attention, element-wise kernels, optimizer."""

from cost_model.compute.head import EdgeTimes, edge_times
from cost_model.compute.layer import LayerTimes, layer_times, rank_tokens
from cost_model.compute.optimizer import update_seconds
from cost_model.compute.rates import Rates

__all__ = [
    "EdgeTimes",
    "LayerTimes",
    "Rates",
    "edge_times",
    "layer_times",
    "rank_tokens",
    "update_seconds",
]
