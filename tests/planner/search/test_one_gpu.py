"""Where there is one GPU there is nobody to share states with: ZeRO is not turned on."""

from dataclasses import replace
from typing import Any

import pytest

from cost_model.plans import Plan, PlanTable
from planner.ranking import evaluate
from planner.request import Resolved
from planner.search import search
from tests.planner.requests import resolve


def _alone(model: str, cluster: str, **training: Any) -> Resolved:
    """A node of one GPU, without offload."""
    asked = resolve(model, cluster, training=training, allow={"offload": False}, seq_len=512)
    node = asked.cluster.node.model_copy(update={"gpus_per_node": 1})
    return replace(asked, cluster=asked.cluster.model_copy(update={"node": node}))


@pytest.mark.parametrize(
    ("model", "training"),
    [("gpt2", {}), ("bert-base", {}), ("llama-2-7b", {"lora": {"quantized_base": True}})],
)
def test_the_first_plan_on_one_gpu_is_without_zero(model: str, training: dict[str, Any]) -> None:
    first = search(_alone(model, "4090-box", **training)).candidates[0]
    assert first.plan.zero_stage == 0


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_gradient_that_nobody_shares_is_added_whole_at_every_stage(stage: int) -> None:
    """DeepSpeed adds every micro-batch's gradients to the partition (stage_1_and_2.py,
    independent_gradient_partition_epilogue; stage3.py, partition_grads), which is all of them."""
    alone = _alone("llama-3.2-1b", "dgx-a100-80g")
    plans = [Plan(zero_stage=z, micro_batch=4, grad_accum=16) for z in (0, stage)]
    seconds = evaluate(alone.world, PlanTable.from_plans(plans)).step.seconds
    assert seconds[1] == pytest.approx(seconds[0], rel=1e-3)
