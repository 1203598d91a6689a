"""Requests that several tests ask."""

from typing import Any

from planner.request import PlanRequest, Resolved


def resolve(
    model: str = "llama-2-7b",
    cluster: str = "dgx-a100-80g",
    nodes: int = 1,
    seq_len: int = 2048,
    global_batch: int = 64,
    training: dict[str, Any] | None = None,
    **search: Any,
) -> Resolved:
    """A request by names, resolved."""
    return PlanRequest.parse(
        {
            "model": {"preset": model},
            "cluster": {"preset": cluster, "nodes": nodes},
            "training": {"seq_len": seq_len, "global_batch": global_batch, **(training or {})},
            "search": search,
        }
    ).resolve()
