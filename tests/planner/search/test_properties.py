"""What must hold of every search, whatever the cost model's figures."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.request import PlanRequest
from planner.search import SearchResult, search
from tests.planner.requests import resolve

MODELS = st.sampled_from(["llama-2-7b", "llama-2-13b", "mistral-7b", "mixtral-8x7b"])
CLUSTERS = st.sampled_from(["dgx-a100-40g", "dgx-a100-80g", "p4d", "dgx-h100"])
BATCHES = st.sampled_from([32, 48, 64, 128])
quickly = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def _seconds(result: SearchResult) -> float:
    return result.candidates[0].step.seconds if result.candidates else float("inf")


def _best(cluster: dict[str, Any], model: str, batch: int, **search_options: Any) -> float:
    request = {
        "model": {"preset": model},
        "cluster": cluster,
        "training": {"seq_len": 2048, "global_batch": batch},
        "search": {"keep": 1, **search_options},
    }
    return _seconds(search(PlanRequest.parse(request).resolve()))


@quickly
@given(MODELS, CLUSTERS, BATCHES, st.sampled_from([1, 2, 3, 6, 11]), st.sampled_from([1, 2, 5]))
def test_more_nodes_never_lower_the_best_throughput(
    model: str, cluster: str, batch: int, nodes: int, added: int
) -> None:
    few = _best({"preset": cluster, "nodes": nodes}, model, batch)
    more = _best({"preset": cluster, "nodes": nodes + added}, model, batch)
    assert more <= few * (1 + 1e-9)


@quickly
@given(MODELS, BATCHES, st.floats(24, 80))
def test_more_gpu_memory_never_lowers_the_best_throughput(
    model: str, batch: int, gib: float
) -> None:
    request = PlanRequest.parse(
        {
            "model": {"preset": model},
            "cluster": {"preset": "dgx-a100-80g", "nodes": 2},
            "training": {"seq_len": 2048, "global_batch": batch},
            "search": {"keep": 1},
        }
    )
    sheet = request.resolve().cluster.node.gpu.model_dump()
    small = {"preset": "dgx-a100-80g", "nodes": 2, "gpu": sheet | {"memory_gib": gib}}
    large = {"preset": "dgx-a100-80g", "nodes": 2, "gpu": sheet | {"memory_gib": 1.3 * gib}}
    assert _best(large, model, batch) <= _best(small, model, batch) * (1 + 1e-9)


@quickly
@given(MODELS, BATCHES, st.floats(10, 400))
def test_more_bandwidth_never_lowers_the_best_throughput(
    model: str, batch: int, gbps: float
) -> None:
    def network(rate: float) -> dict[str, Any]:
        wire = {"kind": "infiniband", "gbps_per_port": rate, "ports_per_node": 4}
        return {"preset": "dgx-a100-80g", "nodes": 2, "network": wire}

    assert _best(network(2 * gbps), model, batch) <= _best(network(gbps), model, batch) * (1 + 1e-9)


LIMITS = [
    {"limits": {"tp": {"max": 1}}},
    {"limits": {"micro_batch": {"max": 1}}},
    {"allow": {"recompute": False}},
    {"allow": {"offload": False}},
    {"allow": {"sp": False, "hpz": False}},
    {"fixed": {"zero_stage": 1}},
    {"software": ["deepspeed"]},
    {"fixed": {"overlap_comm": False}},
    {"fixed": {"prefetch_bucket": 50_000_000}},
    {"limits": {"reduce_bucket": {"min": 500_000_000}}},
    {"headroom_gib": 20},
    {"min_fits_probability": 0.99},
]


@pytest.mark.parametrize("stricter", LIMITS, ids=str)
@pytest.mark.parametrize("model", ["llama-2-13b", "mixtral-8x7b"])
def test_a_stricter_limit_never_improves_the_best(model: str, stricter: dict[str, Any]) -> None:
    cluster = {"preset": "dgx-a100-80g", "nodes": 2}
    free = _best(cluster, model, 64)
    assert _best(cluster, model, 64, **stricter) >= free * (1 - 1e-9)


@pytest.mark.parametrize("other", ["dgx-a100-40g", "dgx-h100", "p4d"])
def test_another_group_of_nodes_never_lowers_the_best_throughput(other: str) -> None:
    groups = [{"preset": "dgx-a100-80g", "nodes": 1}, {"preset": other, "nodes": 1, "name": "b"}]
    options = {"software": ["deepspeed_pipeline"]}
    alone = [_best(group, "llama-2-13b", 64, **options) for group in groups]
    assert _best({"groups": groups}, "llama-2-13b", 64, **options) <= min(alone) * (1 + 1e-9)


def test_the_order_of_groups_does_not_change_the_best_plan() -> None:
    groups = [{"preset": "dgx-a100-80g", "nodes": 1}, {"preset": "dgx-h100", "nodes": 1}]
    options = {"software": ["deepspeed_pipeline"], "fixed": {"pp": 2}}
    one, other = (
        _best({"groups": order}, "llama-2-13b", 64, **options) for order in (groups, groups[::-1])
    )
    assert one == pytest.approx(other)


def test_the_order_does_not_depend_on_the_order_of_the_input() -> None:
    one = search(resolve("llama-2-13b", software=["deepspeed", "megatron_deepspeed"]))
    other = search(resolve("llama-2-13b", software=["megatron_deepspeed", "deepspeed"]))
    assert [c.plan for c in one.candidates] == [c.plan for c in other.candidates]


def test_the_same_request_gives_the_same_ranking() -> None:
    first, second = search(resolve("mixtral-8x7b")), search(resolve("mixtral-8x7b"))
    assert [c.plan for c in first.candidates] == [c.plan for c in second.candidates]


def test_keeping_fewer_plans_keeps_the_best_ones() -> None:
    many = search(resolve("llama-2-13b", nodes=2, keep=40)).candidates
    few = search(resolve("llama-2-13b", nodes=2, keep=7)).candidates
    assert [c.plan for c in few] == [c.plan for c in many[:7]]
