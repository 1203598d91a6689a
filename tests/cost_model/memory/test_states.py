"""Bytes per parameter against the papers, and allocations that users saw fail."""

import pytest

from cost_model.catalogue import model
from cost_model.memory import detail
from cost_model.plans import Plan
from cost_model.specs import TrainingSpec
from tests.cost_model.memory.samples import GIB, dgx, moments

BF16 = TrainingSpec(seq_len=4096, global_batch=8)
LLAMA_7B = 6_738_415_616
STATES = ("parameters", "gradients", "optimizer", "master")


def per_param(plan: Plan, training: TrainingSpec = BF16, moment: str = "step") -> float:
    """Bytes of states per parameter of Llama-2-7B at a moment, without buckets."""
    found = detail(model("llama-2-7b"), dgx(8), training, plan)
    held = next(m for m in found.moments if m.moment == moment)
    return sum(held.categories[name] for name in STATES) / LLAMA_7B


def test_megatron_holds_18_bytes_a_parameter() -> None:
    assert per_param(Plan(software="megatron", dp=8)) == pytest.approx(18)


@pytest.mark.parametrize("d", [2, 8, 64])
def test_megatrons_distributed_optimizer_holds_6_plus_12_over_d(d: int) -> None:
    plan = Plan(software="megatron", dp=d, zero_stage=1)
    assert per_param(plan) == pytest.approx(6 + 12 / d)


@pytest.mark.parametrize(
    ("stage", "expected"), [(0, 16.0), (1, 2 + 2 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)]
)
def test_zero_divides_what_its_paper_says(stage: int, expected: float) -> None:
    """arXiv 1910.02054, figure 1, at the end of the backward pass of an accumulated step."""
    plan = Plan(dp=8, zero_stage=stage, grad_accum=4)
    found = detail(model("llama-2-7b"), dgx(), BF16, plan)
    loss = next(m for m in found.moments if m.moment == "loss")
    held = sum(loss.categories[name] for name in STATES) / LLAMA_7B
    assert held == pytest.approx(expected, rel=1e-6)


def test_fsdp_shards_fp32_parameters_gradients_and_moments() -> None:
    plan = Plan(software="fsdp", dp=8, zero_stage=3)
    assert per_param(plan) == pytest.approx(16 / 8)


def test_megatron_deepspeed_may_add_up_whole_fp32_gradients() -> None:
    """BLOOM's prequel: 4 bytes a parameter beside the weights, not sharded by ZeRO-1; and the
    16-bit gradients of the last micro-batch until the next one."""
    plan = Plan(software="megatron_deepspeed", dp=8, zero_stage=1)
    wide = BF16.model_copy(update={"fp32_grad_accum": True})
    assert per_param(plan, wide, "save") == pytest.approx(2 + 4 + 12 / 8)
    assert per_param(plan, wide) == pytest.approx(2 + 4 + 12 / 8 + 2)


@pytest.mark.parametrize(("optimizer", "states"), [("adamw", 8), ("lion", 4), ("sgd", 0)])
def test_optimizers_hold_their_own_states(optimizer: str, states: float) -> None:
    training = BF16.model_copy(update={"optimizer": optimizer})
    found = detail(model("llama-2-7b"), dgx(), training, Plan(software="megatron"))
    assert found.peak.categories["optimizer"] / LLAMA_7B == pytest.approx(states)


def test_eight_bit_states_are_32_bits_wide_for_the_token_table() -> None:
    training = BF16.model_copy(update={"optimizer": "adam8bit"})
    found = detail(model("llama-2-7b"), dgx(), training, Plan(software="megatron"))
    table = 32000 * 4096
    expected = 2.03125 * (LLAMA_7B - table) + 8 * table
    assert found.peak.categories["optimizer"] == pytest.approx(expected)


def test_without_a_master_copy_everything_has_16_bits() -> None:
    training = BF16.model_copy(update={"fp32_master": False})
    assert per_param(Plan(software="fsdp"), training) == pytest.approx(2 + 2 + 4)


def test_fp32_training_holds_no_master_copy() -> None:
    training = BF16.model_copy(update={"precision": "fp32"})
    assert per_param(Plan(software="megatron"), training) == pytest.approx(16)


def transients(plan: Plan, name: str, stack: str | None = None) -> float:
    """Bytes that come and go at the step: the gradient of this rank's part and what follows."""
    training = BF16.model_copy(update={"stack": stack})
    found = detail(model(name), dgx(8), training, plan)
    step = next(m for m in found.moments if m.moment == "step").categories
    return step["step_transients"] + (step["gradients"] if plan.zero_stage < 3 else 0)


def test_the_flat_fp32_gradient_is_the_allocation_that_failed() -> None:
    """LLaMA-Factory #2959: 72.3e9 / 16 x 4 bytes = 16.83 GiB.

    Beside it the 16-bit gradient (2) and its flat copy (2), in place of which a foreach Adam has
    its temporary (4).
    """
    name, ranks = "qwen2.5-72b", 16
    step = transients(Plan(dp=ranks, zero_stage=2, nodes=2), name)
    assert step / 2 == pytest.approx(model(name).params / ranks * 4)
    assert step / 2 / GIB == pytest.approx(16.83, rel=0.01)


def test_adams_temporary_is_the_allocation_that_failed() -> None:
    """LLaMA-Factory #1221: 6.74e9 / 8 x 4 bytes = 3.14 GiB, of an optimizer of torch."""
    step = transients(Plan(dp=8, zero_stage=3), "llama-2-7b", "hf_trainer")
    assert step / 2 / GIB == pytest.approx(3.14, abs=0.005)


def test_the_flat_copy_at_start_is_the_allocation_that_failed() -> None:
    """dllm #9: 8.0e9 x 2 bytes = 14.9 GiB beside the model's own 14.9."""
    found = moments(Plan(dp=8, zero_stage=2), BF16, "llama-3.1-8b")
    assert found["init"] / 2 == pytest.approx(14.96, abs=0.06)


def test_expert_parameters_shard_over_ranks_that_hold_the_same_experts() -> None:
    mixtral = model("mixtral-8x7b")
    experts = sum(mixtral.kinds[k].expert_params for k in mixtral.layer_pattern)
    plan = Plan(software="megatron", dp=16, ep=8, zero_stage=1)
    found = detail(mixtral, dgx(2), BF16, plan).peak.categories
    dense = mixtral.params - experts
    assert found["parameters"] == pytest.approx(2 * (dense + experts / 8))
    assert found["optimizer"] == pytest.approx(8 * (dense / 16 + experts / 8 / 2))


@pytest.mark.parametrize("knob", ["offload_optimizer", "offload_param"])
def test_offload_takes_states_off_the_gpu(knob: str) -> None:
    base = Plan(dp=8, zero_stage=3)
    away = base.model_copy(update={knob: 1})
    held = detail(model("llama-2-7b"), dgx(), BF16, base).peak.categories
    left = detail(model("llama-2-7b"), dgx(), BF16, away).peak.categories
    gone = ("optimizer", "master") if knob == "offload_optimizer" else ("parameters",)
    assert all(left[name] == 0 < held[name] for name in gone)


@pytest.mark.parametrize(
    ("targets", "trained"), [("attention", 8_388_608), ("all_linear", 19_988_480)]
)
def test_lora_trains_as_many_parameters_as_peft_counts(targets: str, trained: int) -> None:
    """peft counts 19,988,480 for r = 8 on all linear layers of Llama-2-7B."""
    lora = {"rank": 8, "targets": targets}
    training = TrainingSpec.model_validate(BF16.model_dump() | {"lora": lora})
    found = detail(model("llama-2-7b"), dgx(), training, Plan(software="megatron"))
    assert found.peak.categories["optimizer"] / 8 == pytest.approx(trained)


def test_qlora_holds_the_base_in_four_bits_and_the_embeddings_in_sixteen() -> None:
    training = TrainingSpec(
        seq_len=512,
        global_batch=1,
        lora={"rank": 8, "targets": "all_linear", "quantized_base": True},
    )
    found = detail(model("llama-2-7b"), dgx(), training, Plan(software="megatron"))
    ends = 2 * 32000 * 4096 + 4096
    matrices = LLAMA_7B - ends
    expected = 2 * ends + (0.5 + 4 / 64) * matrices + 2 * 19_988_480
    assert found.peak.categories["parameters"] == pytest.approx(expected)
