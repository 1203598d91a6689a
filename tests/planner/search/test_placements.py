"""Pipelines whose stages lie on groups of different nodes."""

from itertools import product
from typing import Any

import pytest

from cost_model import catalogue
from cost_model.plans import Plan, PlanTable, Software
from cost_model.predict import predict
from cost_model.specs import ClusterSpec
from planner.groups import union
from planner.request import PlanRequest, Resolved
from planner.rules import violations
from planner.search import search
from tests.planner.requests import resolve

A100 = {"preset": "dgx-a100-40g", "nodes": 1}
H100 = {"preset": "dgx-h100", "nodes": 1}
PIPE = {"software": ["deepspeed_pipeline"]}


def _ask(*groups: dict[str, Any], model: str = "llama-2-7b", **options: Any) -> Resolved:
    return PlanRequest.parse(
        {
            "model": {"preset": model},
            "cluster": {"groups": list(groups)},
            "training": {"seq_len": 2048, "global_batch": 32},
            "search": PIPE | options,
        }
    ).resolve()


def _pair(first: str, second: str) -> ClusterSpec:
    return union([catalogue.cluster(first, 1), catalogue.cluster(second, 1)])


def test_the_best_division_of_layers_is_that_of_a_loop_over_all_of_them() -> None:
    """Two stages of eight GPUs, in either order, every number of layers on the first."""
    fixed = {"pp": 2, "dp": 8, "micro_batch": 1, "zero_stage": 1, "recompute": "full"}
    allow = {"offload": False}
    found = search(_ask(A100, H100, fixed=fixed, allow=allow)).candidates[0]
    resolved = resolve("llama-2-7b", nodes=2, global_batch=32)
    best: dict[tuple[str, str], float] = {}
    for order in (("dgx-a100-40g", "dgx-h100"), ("dgx-h100", "dgx-a100-40g")):
        plans = [
            Plan(
                software=Software.DEEPSPEED_PIPELINE, nodes=2, grad_accum=4, placement=f"1x{n}",
                reduce_bucket=bucket, overlap_comm=overlap, **fixed,
            )
            for n, bucket, overlap in product(
                range(1, 32), (500_000_000, 200_000_000, 100_000_000, 50_000_000), (True, False)
            )
        ]  # fmt: skip
        said = predict(
            resolved.model, _pair(*order), resolved.training, PlanTable.from_plans(plans)
        )
        best[order] = min(
            s for s, p in zip(said.step.seconds, said.fits_probability, strict=True) if p >= 0.8
        )
    assert found.plan.placement
    assert found.step.seconds == pytest.approx(min(best.values()), rel=1e-3)


def test_equal_groups_with_an_even_placement_are_as_fast_as_one_cluster() -> None:
    resolved = resolve("llama-2-13b", nodes=2, global_batch=64)
    same = union([catalogue.cluster("dgx-a100-80g", 1)] * 2)
    plan = Plan(software="deepspeed_pipeline", nodes=2, pp=2, dp=8, grad_accum=8, zero_stage=1)
    placed = plan.model_copy(update={"placement": Plan(placement="1x20").placement})
    one = predict(resolved.model, resolved.cluster, resolved.training, PlanTable.from_plans([plan]))
    two = predict(resolved.model, same, resolved.training, PlanTable.from_plans([placed]))
    assert two.step.seconds[0] == pytest.approx(one.step.seconds[0], rel=2e-3)
    assert two.memory.total_bytes[0] == one.memory.total_bytes[0]
    assert two.step.mfu[0] == pytest.approx(one.step.mfu[0], rel=2e-3)


def test_the_slowest_stage_sets_the_pace_wherever_it_is() -> None:
    """The step falls while the slower group gives layers away, then rises with the faster one."""
    resolved = resolve("llama-2-7b", nodes=2, global_batch=32)
    plans = [
        Plan(
            software="deepspeed_pipeline", nodes=2, pp=2, dp=8, grad_accum=4, recompute="full",
            placement=f"1x{layers}",
        )
        for layers in range(1, 32)
    ]  # fmt: skip
    said = predict(
        resolved.model,
        _pair("dgx-a100-40g", "dgx-h100"),
        resolved.training,
        PlanTable.from_plans(plans),
    )
    assert said.step.node_group is not None
    turn = said.step.seconds.argmin()
    assert said.step.node_group[:turn].tolist() == [1] * turn
    assert set(said.step.node_group[turn + 1 :].tolist()) == {0}
    assert (said.step.seconds[1 : turn + 1] < said.step.seconds[:turn]).all()
    assert (said.step.seconds[turn + 1 :] > said.step.seconds[turn:-1]).all()
    # an H100 is two to three times as fast: it takes two thirds of the layers and more
    assert 5 <= turn + 1 <= 11


def test_each_stage_must_fit_the_memory_of_its_own_group() -> None:
    resolved = resolve("llama-2-13b", nodes=2, global_batch=32)
    plan = Plan(software="deepspeed_pipeline", nodes=2, pp=2, dp=8, grad_accum=4, placement="1x30")
    table = PlanTable.from_plans([plan])
    small = _pair("dgx-a100-40g", "dgx-a100-80g")
    large = _pair("dgx-a100-80g", "dgx-a100-40g")
    said = [predict(resolved.model, c, resolved.training, table) for c in (small, large)]
    assert said[0].memory.total_bytes[0] == said[1].memory.total_bytes[0]
    assert said[0].fits_probability[0] < 0.1
    assert said[1].fits_probability[0] > said[0].fits_probability[0]


def test_an_answer_names_the_groups_of_its_stages_and_the_one_that_is_waited_for() -> None:
    best = search(_ask(A100, H100)).candidates[0]
    assert sum(one.layers for one in best.stages_on) == 32
    assert best.step.group in {"dgx-a100-40g", "dgx-h100"}
    assert best.why is not None
    assert any("set the pace" in sentence for sentence in best.why.sentences)
    names = [one.group for one in best.stages_on]
    assert best.cluster == " + ".join(f"1 x {name}" for name in names)


def test_a_slower_group_beside_a_faster_one_never_hurts() -> None:
    alone = search(_ask(H100 | {"nodes": 2}, H100 | {"nodes": 1, "name": "more"}))
    beside = search(_ask(H100 | {"nodes": 2}, A100))
    only = search(resolve("llama-2-7b", "dgx-h100", nodes=2, global_batch=32, **PIPE))
    first = [found.candidates[0].step.seconds for found in (alone, beside, only)]
    assert first[0] <= first[1] * (1 + 1e-9) <= first[2] * (1 + 2e-9)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"placement": "1x31", "pp": 3, "dp": 8}, "placement-groups"),  # one layer on two stages
        ({"placement": "1x20", "pp": 2, "dp": 4, "tp": 1, "nodes": 1}, "placement-groups"),
        ({"placement": "1x20", "pp": 2, "dp": 8, "software": "megatron_deepspeed"},
         "placement-software"),
        ({"placement": "1x20", "pp": 2, "dp": 8, "software": "megatron", "vpp": 2},
         "placement-software"),
        ({"placement": "1x20", "pp": 2, "dp": 8, "last_stage_layers": 5}, "stage-layers-pp"),
    ],
)  # fmt: skip
def test_a_placement_that_no_software_can_run_names_its_rule(
    change: dict[str, Any], rule: str
) -> None:
    resolved = resolve("llama-2-7b", nodes=2, global_batch=32)
    world = resolved.world.__class__(
        resolved.model, _pair("dgx-a100-40g", "dgx-h100"), resolved.training
    )
    plan = Plan(**{"software": "deepspeed_pipeline", "nodes": 2, "grad_accum": 4} | change)
    assert rule in {v.rule for v in violations(world, plan)}


def test_a_placement_on_equal_nodes_is_refused() -> None:
    resolved = resolve("llama-2-7b", nodes=2, global_batch=32)
    plan = Plan(software="deepspeed_pipeline", nodes=2, pp=2, dp=8, grad_accum=4, placement="1x20")
    assert "placement-groups" in {v.rule for v in violations(resolved.world, plan)}


def test_stages_on_three_groups_are_searched() -> None:
    found = search(_ask(A100, H100, {"preset": "dgx-a100-80g", "nodes": 1}, keep=200))
    assert any(len(one.stages_on) == 3 for one in found.candidates)
    assert not found.certificate.exhaustive


def test_one_more_node_is_asked_of_every_group_and_its_patch_makes_the_request() -> None:
    asked = _ask(A100, H100, what_if=True, fixed={"pp": 2, "zero_stage": 1})
    answers = search(asked).what_if
    told = [one.what for one in answers]
    assert told[:2] == ["one more node of dgx-a100-40g", "one more node of dgx-h100"]
    assert "half the network bandwidth" in told
    first = answers[1]
    groups = first.patch["cluster"]["groups"]
    changed = search(_ask(*groups, fixed={"pp": 2, "zero_stage": 1})).candidates[0]
    assert first.candidate is not None
    assert changed.step.seconds == pytest.approx(first.candidate.step.seconds)
