"""Each rule against a case whose outcome is known from the engine or from the field."""

from typing import Any

import numpy as np
import pytest

from cost_model.plans import Plan, PlanTable
from planner.rules import RULES, legal, rule, violations
from tests.planner.requests import resolve

LLAMA = resolve("llama-2-13b", nodes=2, global_batch=256, seq_len=4096).world
QWEN_32B = resolve("qwen2.5-32b", nodes=8, global_batch=512).world
MIXTRAL = resolve("mixtral-8x7b", nodes=2, global_batch=256).world
QLORA = resolve("llama-2-70b", training={"lora": {"quantized_base": True}}).world
FP32_GRADS = resolve("llama-2-7b", training={"fp32_grad_accum": True}).world
V100 = resolve("llama-2-7b", cluster="v100-quad", nodes=4, allow={"zero": True}).world

BASE: dict[str, Any] = {"nodes": 2, "dp": 16, "micro_batch": 1, "grad_accum": 16}

REFUSED = [
    ("world-size", LLAMA, BASE | {"dp": 8, "grad_accum": 32}),
    ("nodes-available", LLAMA, BASE | {"nodes": 4, "dp": 32, "grad_accum": 8}),
    ("batch-triple", LLAMA, BASE | {"micro_batch": 3}),
    ("heads-tp", LLAMA, BASE | {"tp": 16, "dp": 1, "grad_accum": 256}),
    ("kv-heads-tp", QWEN_32B, {"nodes": 2, "tp": 16, "dp": 1}),
    ("vocab-tp", LLAMA, {"tp": 3}),
    ("heads-sp", QWEN_32B, {"sp": 16, "zero_stage": 3}),
    ("kv-heads-sp", QWEN_32B, {"sp": 5, "zero_stage": 3}),
    ("layers-pp", LLAMA, {"software": "megatron", "pp": 16, "grad_accum": 256}),
    ("layers-pp", LLAMA, {"software": "deepspeed_pipeline", "pp": 64}),
    (
        "interleave-micro-batches",
        LLAMA,
        {"software": "megatron", "pp": 4, "vpp": 2, "grad_accum": 6},
    ),
    ("experts-ep", MIXTRAL, BASE | {"ep": 16, "zero_stage": 2}),
    ("experts-ep", LLAMA, BASE | {"ep": 2}),
    ("ep-dp", MIXTRAL, {"software": "deepspeed_pipeline", "pp": 8, "dp": 2, "ep": 4}),
    ("pipeline-zero", LLAMA, {"software": "deepspeed_pipeline", "pp": 2, "zero_stage": 2}),
    ("pipeline-software", LLAMA, {"pp": 2}),
    ("pipeline-autotp", LLAMA, {"software": "deepspeed_pipeline", "pp": 2, "tp": 2}),
    ("sp-autotp", LLAMA, {"tp": 2, "sp": 2, "zero_stage": 3}),
    ("sp-zero", LLAMA, {"sp": 2, "zero_stage": 2}),
    ("autotp-moe", MIXTRAL, {"tp": 2}),
    ("moe-zero", MIXTRAL, {"ep": 2, "dp": 16, "zero_stage": 3}),
    ("sequence-parallel-software", LLAMA, {"tp": 2, "sequence_parallel": True}),
    ("selective-recompute", LLAMA, {"recompute": "selective"}),
    ("lora-software", QLORA, {"tp": 8}),
    ("qlora-zero", QLORA, {"zero_stage": 3}),
    ("offload-optimizer-stage", LLAMA, BASE | {"offload_optimizer": "cpu"}),
    ("offload-param-stage", LLAMA, BASE | {"zero_stage": 2, "offload_param": "cpu"}),
    ("nvme-stage", LLAMA, BASE | {"zero_stage": 2, "offload_optimizer": "nvme"}),
    ("nvme-present", V100, {"zero_stage": 3, "offload_optimizer": "nvme"}),
    ("offload-ratio", LLAMA, {"zero_stage": 2, "offload_optimizer": "cpu", "offload_ratio": 0.5}),
    ("hpz", LLAMA, BASE | {"zero_stage": 2, "hpz": 8}),
    ("hpz", LLAMA, BASE | {"zero_stage": 3, "hpz": 3}),
    ("quantized-weights-stage", LLAMA, {"zero_stage": 2, "quantized_weights": True}),
    ("quantized-gradients", LLAMA, {"zero_stage": 3, "quantized_gradients": True}),
    ("fp32-accumulation", FP32_GRADS, {"zero_stage": 0}),
    ("partitioned-checkpoints", LLAMA, {"partition_activations": True}),
    (
        "partitioned-checkpoints-sequence",
        LLAMA,
        {
            **{"software": "megatron_deepspeed", "tp": 2, "recompute": "full"},
            **{"sequence_parallel": True, "partition_activations": True},
        },
    ),
    ("cpu-checkpoints", LLAMA, {"cpu_checkpointing": True}),
]


@pytest.mark.parametrize(("name", "world", "knobs"), REFUSED)
def test_a_plan_that_breaks_a_rule_is_told_which_and_with_numbers(
    name: str, world: Any, knobs: dict[str, Any]
) -> None:
    found = {v.rule: v for v in violations(world, Plan(**knobs))}
    assert name in found
    assert len(found[name].message) > 20


KEPT = [
    (LLAMA, BASE),
    (LLAMA, BASE | {"zero_stage": 3, "hpz": 8, "offload_optimizer": "cpu", "offload_ratio": 0.4}),
    (LLAMA, BASE | {"tp": 2, "dp": 8, "grad_accum": 32, "zero_stage": 2}),
    (LLAMA, BASE | {"sp": 4, "dp": 4, "grad_accum": 64, "zero_stage": 3}),
    (
        LLAMA,
        {
            "software": "megatron_deepspeed",
            "nodes": 2,
            "tp": 4,
            "pp": 4,
            "grad_accum": 256,
            "sequence_parallel": True,
            "zero_stage": 1,
        },
    ),
    (MIXTRAL, BASE | {"ep": 8, "zero_stage": 2}),
    (MIXTRAL, BASE | {"zero_stage": 3}),
]


@pytest.mark.parametrize(("world", "knobs"), KEPT)
def test_combinations_that_the_engine_trains_are_legal(world: Any, knobs: dict[str, Any]) -> None:
    assert violations(world, Plan(**knobs)) == []


def test_the_mask_of_a_table_equals_the_verdict_on_each_plan() -> None:
    plans = [Plan(**knobs) for _, world, knobs in REFUSED if world is LLAMA]
    plans += [Plan(**knobs) for world, knobs in KEPT if world is LLAMA]
    mask = legal(LLAMA, PlanTable.from_plans(plans))
    assert mask.tolist() == [violations(LLAMA, plan) == [] for plan in plans]


def test_every_rule_reads_only_the_columns_that_it_names() -> None:
    """The search applies a rule as soon as its columns are known."""
    rng = np.random.default_rng(0)
    plans = PlanTable.from_plans([Plan(**knobs) for _, _, knobs in REFUSED])
    for one in RULES:
        shuffled = {}
        for name in Plan.model_fields:
            column = getattr(plans, name)
            shuffled[name] = column if name in one.reads else rng.permutation(column)
        other = PlanTable.from_columns(len(plans), **shuffled)
        for world in (LLAMA, MIXTRAL, QLORA, FP32_GRADS):
            assert (one.legal(world, plans) == one.legal(world, other)).all(), one.name


def test_qwen2_5_14b_takes_the_sequence_parallel_degrees_of_its_heads() -> None:
    """40 heads and 8 key-value heads: 1, 2, 4, 8 and 40, as reported for verl."""
    world = resolve("qwen2.5-32b", nodes=8, global_batch=512).world
    degrees = [
        sp
        for sp in range(1, 41)
        if rule("heads-sp").legal(world, PlanTable.from_columns(1, sp=sp)).all()
        and rule("kv-heads-sp").legal(world, PlanTable.from_columns(1, sp=sp)).all()
    ]
    assert degrees == [1, 2, 4, 8, 40]
