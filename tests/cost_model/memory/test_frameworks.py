"""What single frameworks hold beyond the software that they are like."""

import pytest

from cost_model.memory import detail
from cost_model.plans import Plan, Recompute, Software
from cost_model.specs import Lora, ModelSpec, TrainingSpec, explicit
from tests.cost_model.memory.samples import dgx, gpt

HIDDEN, LAYERS, TOKENS = 4096, 4, 2048
PLAIN = gpt(hidden=HIDDEN, layers=LAYERS, heads=32)
GATED = explicit(
    name="llama",
    hidden=HIDDEN,
    layers=LAYERS,
    heads=32,
    intermediate=11008,
    vocab=32000,
    gated=True,
)
BF16 = TrainingSpec(seq_len=TOKENS, global_batch=8, precision="bf16", fused_norm=True)


def at(spec: ModelSpec, training: TrainingSpec, plan: Plan, moment: str) -> dict[str, float]:
    """Bytes by category of the first stage at a moment."""
    found = detail(spec, dgx(1), training, plan)
    return next(m.categories for m in found.moments if m.moment == moment)


def test_paddle_copies_the_input_of_each_column_parallel_matrix() -> None:
    # queries, keys, values, gate and up: five inputs of 2 s b h instead of two, and silu beside its
    # product; alone, a rank copies nothing
    training = BF16.model_copy(update={"stack": "paddle"})
    for tp, copies in ((1, 0), (2, 3)):
        plan = Plan(software=Software.MEGATRON, tp=tp)
        held = at(GATED, training, plan, "loss")["activations"]
        megatron = at(GATED, BF16, plan, "loss")["activations"]
        more = TOKENS * (2 * copies * HIDDEN + 2 * 11008 / tp)
        assert held - megatron == pytest.approx(LAYERS * more)


def test_zero_1_of_2021_flattens_all_gradients_and_has_no_buckets() -> None:
    fp16 = BF16.model_copy(update={"precision": "fp16", "stack": "deepspeed_2021"})
    plan = Plan(software=Software.MEGATRON_DEEPSPEED, zero_stage=1, dp=8, grad_accum=4)
    step = at(PLAIN, fp16, plan, "step")
    # a flat 16-bit copy of all, and of an eighth the 16-bit and fp32 ones
    assert step["step_transients"] == pytest.approx((2 + 6 / 8) * PLAIN.params)
    assert at(PLAIN, fp16, plan, "backward_end")["buckets"] == 0


def test_an_8_bit_optimizer_without_zero_gets_one_fp32_gradient_after_the_other() -> None:
    fp16 = BF16.model_copy(update={"precision": "fp16"})
    plan = Plan(software=Software.MEGATRON_DEEPSPEED, zero_stage=0)
    step = at(PLAIN, fp16.model_copy(update={"optimizer": "adam8bit"}), plan, "step")
    assert step["step_transients"] == pytest.approx(4 * PLAIN.params)
    assert at(PLAIN, fp16, plan, "step")["step_transients"] == pytest.approx(6 * PLAIN.params)


def test_litgpt_adds_up_whole_gradients_between_steps() -> None:
    training = BF16.model_copy(update={"fp32_master": False, "stack": "litgpt"})
    for micro_batches, bytes_each in ((1, 0), (4, 2)):
        plan = Plan(software=Software.FSDP, zero_stage=3, dp=4, grad_accum=micro_batches)
        held = at(PLAIN, training, plan, "loss").get("gradients", 0.0)
        assert held == pytest.approx(bytes_each * PLAIN.params)


def test_litgpts_4_bit_base_takes_in_the_output_matrix() -> None:
    lora = Lora(targets="attention", rank=8, quantized_base=True)
    plan = Plan(software=Software.FSDP, recompute=Recompute.FULL)
    held = [
        at(GATED, BF16.model_copy(update={"lora": lora, "stack": stack}), plan, "save")
        for stack in ("litgpt", None)
    ]
    # 4 bits and a scale of 32 bits for 64 weights, instead of 16 bits
    less = 32000 * HIDDEN * (2 - 0.5625)
    assert held[1]["parameters"] - held[0]["parameters"] == pytest.approx(less, rel=1e-4)
