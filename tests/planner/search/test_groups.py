"""Node groups with different GPUs."""

from typing import Any

import pytest

from planner.errors import RequestError
from planner.groups import options
from planner.request import PlanRequest, Resolved
from planner.search import search
from tests.planner.requests import resolve


def _resolve(*groups: dict[str, Any], **search_options: Any) -> Resolved:
    return PlanRequest.parse(
        {
            "model": {"preset": "llama-2-13b"},
            "cluster": {"groups": list(groups)},
            "training": {"seq_len": 2048, "global_batch": 96},
            "search": search_options,
        }
    ).resolve()


A100 = {"preset": "dgx-a100-80g", "nodes": 2}
H100 = {"preset": "dgx-h100", "nodes": 2}
QUAD = {"preset": "v100-quad", "nodes": 2}


def test_each_group_alone_and_both_together_are_searched() -> None:
    found = search(_resolve(A100, H100, keep=400))
    assert {c.cluster for c in found.candidates} >= {"dgx-h100"}
    seconds = [c.step.seconds for c in found.candidates]
    assert seconds == sorted(seconds)
    assert [c.rank for c in found.candidates] == list(range(1, len(seconds) + 1))


def test_the_answer_is_never_worse_than_the_best_group_alone() -> None:
    both = search(_resolve(A100, H100)).candidates[0].step.seconds
    alone = [
        search(resolve("llama-2-13b", name, nodes=2, global_batch=96)).candidates[0].step.seconds
        for name in ("dgx-a100-80g", "dgx-h100")
    ]
    assert both <= min(alone) * (1 + 1e-9)


def test_the_slowest_governs_a_union() -> None:
    (*_, whole) = options(_resolve(A100, H100).groups).clusters
    slow = resolve("llama-2-13b", "dgx-a100-80g", nodes=2, global_batch=96).cluster
    assert whole.nodes == 4
    assert whole.node.gpu.bf16_tflops == slow.node.gpu.bf16_tflops
    assert whole.node.link == slow.node.link
    assert whole.network == slow.network


def test_equal_groups_together_are_as_good_as_one_cluster_of_all_nodes() -> None:
    apart = search(_resolve(A100, A100 | {"name": "other"})).candidates[0]
    one = search(resolve("llama-2-13b", nodes=4, global_batch=96)).candidates[0]
    assert apart.step.seconds == pytest.approx(one.step.seconds)


def test_nodes_of_unequal_size_are_not_joined_and_the_reason_is_told() -> None:
    resolved = _resolve(A100, QUAD)
    found = search(resolved)
    assert any("nodes of 4 and 8 GPUs" in note for note in found.notes)
    assert {c.cluster for c in found.candidates} <= {"dgx-a100-80g", "v100-quad"}


def test_a_fault_inside_a_group_is_pointed_to() -> None:
    with pytest.raises(RequestError) as caught:
        _resolve(A100, {"preset": "dgx-h10", "nodes": 1})
    assert caught.value.problems[0].pointer == "/cluster/groups/1/preset"


def test_groups_of_one_name_are_told_apart() -> None:
    names = [group.name for group in _resolve(A100, A100 | {"host_ram_gib": 500.0}).groups]
    assert names == ["dgx-a100-80g (1)", "dgx-a100-80g (2)"]


def test_parts_beside_groups_are_refused() -> None:
    with pytest.raises(RequestError, match="inside each of the groups"):
        PlanRequest.parse(
            {
                "model": "llama-2-7b",
                "cluster": {"groups": [A100], "host_ram_gib": 100},
                "training": {"seq_len": 2048, "global_batch": 8},
            }
        )


def test_the_longest_sequence_of_several_groups_is_that_of_the_best_option() -> None:
    found = search(_resolve(A100, H100, objective="largest_sequence", fixed={"micro_batch": 1}))
    one = search(
        resolve(
            "llama-2-13b",
            nodes=2,
            global_batch=96,
            objective="largest_sequence",
            fixed={"micro_batch": 1},
        )
    )
    assert found.seq_len is not None
    assert one.seq_len is not None
    assert found.seq_len >= one.seq_len


def test_no_plan_of_the_front_of_several_groups_beats_another_in_everything() -> None:
    front = search(_resolve(A100, H100, objective="pareto", fixed={"zero_stage": 3})).candidates
    points = [(c.step.seconds, -c.memory.headroom_bytes, c.step.seconds * c.gpus) for c in front]
    assert len(front) > 2
    for a in points:
        assert not any(b != a and all(x <= y for x, y in zip(b, a, strict=True)) for b in points)


def test_where_no_group_fits_a_plan_the_whole_is_told_what_is_missing() -> None:
    tight = {"software": ["deepspeed"], "fixed": {"zero_stage": 0}, "allow": {"tp": False}}
    found = search(_resolve(A100 | {"nodes": 1}, H100 | {"nodes": 1}, **tight))
    assert found.candidates == ()
    assert found.nothing_fits is not None
    assert found.nothing_fits.why
