"""A cluster of different nodes over HTTP: search, explain, export."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.samples import searched

GROUPS: dict[str, Any] = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {
        "groups": [{"preset": "dgx-a100-40g", "nodes": 1}, {"preset": "dgx-h100", "nodes": 1}]
    },
    "training": {"seq_len": 2048, "global_batch": 64},
    "search": {"software": ["deepspeed_pipeline"], "keep": 10, "fixed": {"pp": 2}},
}


@pytest.fixture(scope="module")
def best(client: TestClient) -> dict[str, Any]:
    """The best candidate of two groups."""
    plan = searched(client, GROUPS)
    assert plan["status"] == "succeeded", plan["error"]
    page = client.get(plan["links"]["candidates"]).json()
    detail: dict[str, Any] = client.get(page["items"][0]["links"]["self"]).json()
    return detail


def test_the_best_plan_over_two_groups_says_which_stages_lie_where(best: dict[str, Any]) -> None:
    assert best["plan"]["placement"].startswith("1x")
    assert sum(one["layers"] for one in best["stages_on"]) == 32
    assert best["step"]["group"] in {"dgx-a100-40g", "dgx-h100"}
    assert len(best["stages"]) == 2


def test_its_export_lists_the_hosts_in_the_order_of_the_stages(
    client: TestClient, best: dict[str, Any]
) -> None:
    exported = client.get(best["links"]["exports"] + "/launch", params={"files": True})
    assert exported.status_code == 200, exported.text
    text = exported.json()["files"]["hostfile"]
    first, second = (one["group"] for one in best["stages_on"])
    assert 0 <= text.index(f"# {first}") < text.index(f"# {second}")


def test_a_placement_can_be_asked_about(client: TestClient, best: dict[str, Any]) -> None:
    answer = client.get(best["links"]["plan"], params={"explain": '{"placement": "1x30"}'})
    assert answer.status_code == 200, answer.text
    assert "placement" in answer.text
