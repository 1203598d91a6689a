import json
from functools import cache
from typing import Any

import pytest

from cost_model.plans import Offload, Plan, PlanTable, Software
from planner.export import checked_world_size, ds_config
from planner.request import Resolved
from planner.search import search
from planner.space import enumerate_plans
from tests.planner.export.engine_config import parse
from tests.planner.requests import resolve

KINDS = {
    "zero 0": {"fixed": {"zero_stage": 0, "software": "deepspeed"}},
    "zero 1": {"fixed": {"zero_stage": 1, "software": "deepspeed"}},
    "zero 2": {"fixed": {"zero_stage": 2}},
    "zero 3": {"fixed": {"zero_stage": 3, "offload_param": "none"}},
    "hpz": {"nodes": 2, "fixed": {"hpz": 8}},
    "zero++": {
        "nodes": 2,
        "allow": {"compression": True},
        "fixed": {"hpz": 8, "quantized_weights": True, "quantized_gradients": True},
    },
    "optimizer offload": {"fixed": {"zero_stage": 2, "offload_optimizer": "cpu"}},
    "partial offload": {
        "fixed": {"zero_stage": 3, "offload_optimizer": "cpu", "offload_ratio": 0.5}
    },
    "everything in host RAM": {
        "fixed": {"zero_stage": 3, "offload_optimizer": "cpu", "offload_param": "cpu"}
    },
    "everything on NVMe": {
        "fixed": {"zero_stage": 3, "offload_optimizer": "nvme", "offload_param": "nvme"}
    },
    "autotp": {"fixed": {"tp": 4, "software": "deepspeed", "zero_stage": 1}},
    "autotp zero 3": {"fixed": {"tp": 4, "software": "deepspeed", "zero_stage": 3}},
    "ulysses": {"fixed": {"sp": 4}},
    "pipeline": {"fixed": {"pp": 4, "software": "deepspeed_pipeline"}},
    "3d": {
        "nodes": 2,
        "fixed": {"pp": 2, "tp": 4, "sequence_parallel": True},
        "software": ["megatron_deepspeed"],
    },
    "partitioned checkpoints": {
        "fixed": {"tp": 4, "partition_activations": True, "cpu_checkpointing": True}
    },
    "experts": {"model": "mixtral-8x7b", "nodes": 4, "fixed": {"ep": 8}},
    "experts as leaves": {"model": "mixtral-8x7b", "nodes": 4, "fixed": {"ep": 1, "zero_stage": 3}},
    "lora": {"training": {"lora": {}}},
    "qlora": {"training": {"lora": {"quantized_base": True}}},
    "fp16": {"training": {"precision": "fp16"}},
    "fp32": {"training": {"precision": "fp32"}, "nodes": 2},
    "fp32 accumulation": {"training": {"fp32_grad_accum": True}, "nodes": 2},
    "no master": {"training": {"fp32_master": False}, "fixed": {"zero_stage": 2}},
    "sgd": {"training": {"optimizer": "sgd"}},
    "adam8bit": {"training": {"optimizer": "adam8bit"}},
    "lion": {"training": {"optimizer": "lion"}},
    "adafactor": {"training": {"optimizer": "adafactor"}},
}


@cache
def _candidates(kind: str) -> tuple[Resolved, list[Plan]]:
    resolved = resolve(**{"min_fits_probability": 0.5, "keep": 200, **KINDS[kind]})
    found = search(resolved).candidates
    assert found, f"no plan of kind {kind} fits"
    step = max(1, len(found) // 12)
    return resolved, [c.plan for c in found[::step]]


def _config(resolved: Resolved, plan: Plan) -> dict[str, Any]:
    return ds_config(resolved.model, resolved.cluster, resolved.training, plan)


@pytest.mark.parametrize("kind", KINDS)
def test_deepspeed_accepts_the_config_of_ranked_plans_without_a_warning(kind: str) -> None:
    resolved, plans = _candidates(kind)
    for plan in plans:
        parsed, warnings = parse(_config(resolved, plan), checked_world_size(plan))
        assert warnings == []
        assert parsed.zero_optimization_stage == plan.zero_stage
        assert parsed.train_micro_batch_size_per_gpu == plan.micro_batch
        assert parsed.gradient_accumulation_steps == plan.grad_accum


@pytest.mark.parametrize("kind", KINDS)
def test_the_batch_triple_gives_the_requested_global_batch(kind: str) -> None:
    resolved, plans = _candidates(kind)
    for plan in plans:
        config = _config(resolved, plan)
        micro = config["train_micro_batch_size_per_gpu"]
        assert (
            micro * config["gradient_accumulation_steps"] * plan.dp
            == resolved.training.global_batch
        )
        autotp = config.get("tensor_parallel", {}).get("autotp_size", 1)
        if autotp == 1 or plan.zero_stage < 3:
            assert config["train_batch_size"] == resolved.training.global_batch * autotp
        else:
            assert "train_batch_size" not in config


def test_no_value_is_left_to_be_filled_in() -> None:
    for kind in KINDS:
        resolved, plans = _candidates(kind)
        for plan in plans:
            text = json.dumps(_config(resolved, plan))
            assert '"auto"' not in text
            assert "null" not in text


def test_keys_of_other_stages_do_not_appear() -> None:
    resolved = resolve(nodes=2)
    stage_3_only = {"offload_param", "leaf_module"}
    for block in enumerate_plans(resolved.world, resolved.search):
        rows = range(0, len(block.table), 37)
        for plan in (block.table.plan(row) for row in rows):
            zero = _config(resolved, plan)["zero_optimization"]
            names = set(zero)
            if plan.zero_stage == 0:
                assert names == {"stage"}
            if plan.zero_stage < 3:
                assert not {n for n in names if n.startswith("stage3") or n.startswith("zero_")}
                assert not names & stage_3_only
            else:
                assert not {n for n in names if n.startswith("allgather")}
            assert ("offload_optimizer" in names) == (plan.offload_optimizer != Offload.NONE)


def test_the_engine_refuses_the_true_global_batch_with_autotp() -> None:
    """Why train_batch_size is TP times too large there."""
    resolved, plans = _candidates("autotp")
    plan = next(p for p in plans if p.zero_stage < 3)
    config = _config(resolved, plan)
    config["train_batch_size"] = resolved.training.global_batch
    with pytest.raises(AssertionError, match="train_batch_size is not equal"):
        parse(config, checked_world_size(plan))


def test_megatron_deepspeed_keeps_its_own_optimizer() -> None:
    resolved, plans = _candidates("3d")
    assert all(p.software == Software.MEGATRON_DEEPSPEED for p in plans)
    assert "optimizer" not in _config(resolved, plans[0])


def test_swap_buffers_hold_the_largest_partition_and_little_more() -> None:
    """llama-2-7b's largest matrix is the fused gate and up of 2 x 11008 x 4096 at most."""
    resolved, plans = _candidates("everything on NVMe")
    plan = plans[0]
    zero = _config(resolved, plan)["zero_optimization"]
    size = zero["offload_param"]["buffer_size"]
    ranks = int(PlanTable.from_plans([plan]).zero_group[0])
    assert 32000 * 4096 / ranks <= size <= 2 * 32000 * 4096 / ranks + 2**20


def test_a_ratio_finds_enough_sub_groups_to_split() -> None:
    """The engine keeps int((1 - ratio) x sub-groups) on the GPU: of one group nothing."""
    resolved, plans = _candidates("partial offload")
    plan = next(p for p in plans if p.offload_ratio == 0.5)
    zero = _config(resolved, plan)["zero_optimization"]
    share = resolved.model.params / int(PlanTable.from_plans([plan]).zero_group[0])
    groups = share // zero["sub_group_size"]
    assert int((1 - zero["offload_optimizer"]["ratio"]) * groups) >= 16
