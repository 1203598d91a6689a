"""Requests and candidates to test with."""

import time
from typing import Any

from fastapi.testclient import TestClient

from api.store import NewCandidate
from api.store.records import PredictionRecord

SHORTEST: dict[str, Any] = {
    "model": {"preset": "llama-2-13b"},
    "cluster": {"preset": "dgx-a100-80g", "nodes": 1},
    "training": {"seq_len": 4096, "global_batch": 256},
}
"""The shortest request for plans."""


TINY: dict[str, Any] = {
    "model": {
        "geometry": {"hidden": 64, "layers": 2, "heads": 4, "vocab": 128, "intermediate": 96}
    },
    "cluster": {"preset": "local-cpu", "nodes": 1, "gpus_per_node": 2},
    "training": {"seq_len": 32, "global_batch": 4, "precision": "fp32", "attention": "sdpa"},
    "search": {"software": ["deepspeed"], "keep": 20, "allow": {"offload": False, "nvme": False}},
}
"""A request whose plans train in a blink on two processors."""


def small(**search: Any) -> dict[str, Any]:
    """A request whose search is done in a blink."""
    options = {"software": ["deepspeed"], "keep": 20} | search
    return SHORTEST | {"search": options}


def candidate(rank: int, **values: Any) -> NewCandidate:
    """A candidate made up for the store."""
    plan = {
        "tp": values.pop("tp", 1),
        "zero_stage": values.pop("zero_stage", 0),
        "software": values.pop("software", "deepspeed"),
        "compile": values.pop("compile", False),
        "offload_ratio": values.pop("offload_ratio", 1.0),
    }
    prediction: dict[str, Any] = {
        "gpus": 8,
        "step_seconds": float(rank),
        "tokens_per_s": 1000.0 / rank,
        "mfu": 0.5,
        "memory_bytes": 2.0**30 * rank,
        "host_bytes": 0.0,
        "fits": True,
        "fits_probability": 0.9,
        "days": None,
        "usd": None,
        "detail": {"memory": {"capacity_bytes": 80.0 * 2**30}},
    }
    return NewCandidate(rank, plan, PredictionRecord(**(prediction | values)))


def finished(client: TestClient, plan_id: str, seconds: float = 60) -> dict[str, Any]:
    """The request once its search is done."""
    return ended(client, f"/v1/plans/{plan_id}", seconds)


def ended(client: TestClient, url: str, seconds: float = 180) -> dict[str, Any]:
    """A resource once its job is done."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found: dict[str, Any] = client.get(url).json()
        if found["status"] not in {"queued", "running"}:
            return found
        time.sleep(0.05)
    raise TimeoutError(found)


def searched(client: TestClient, request: dict[str, Any]) -> dict[str, Any]:
    """Posts a request and waits for its search."""
    answer = client.post("/v1/plans", json=request)
    assert answer.status_code == 202, answer.text
    return finished(client, answer.json()["id"])
