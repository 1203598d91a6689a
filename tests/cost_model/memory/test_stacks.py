"""Frameworks with a memory profile of their own; loads and losses that are not the usual ones."""

import pytest

from cost_model.calibration.memory import default_memory_coefficients
from cost_model.catalogue import model
from cost_model.memory import detail, memory
from cost_model.plans import Plan, PlanTable, Recompute, Software
from cost_model.specs import Lora, TrainingSpec
from tests.cost_model.memory.samples import GIB, dgx, gpt

GPT = gpt(hidden=4096, layers=4, heads=32)
BF16 = TrainingSpec(seq_len=2048, global_batch=8, precision="bf16")


def moment(plan: Plan, training: TrainingSpec, name: str) -> dict[str, float]:
    """Bytes by category of the first stage at a moment."""
    found = detail(GPT, dgx(1), training, plan)
    return next(m.categories for m in found.moments if m.moment == name)


def test_a_framework_stands_for_every_software() -> None:
    known = default_memory_coefficients().in_stack("nanotron")
    assert {known.of(s).logit_peak_bytes for s in Software} == {14}
    assert default_memory_coefficients().in_stack(None) is default_memory_coefficients()


def test_every_framework_says_where_its_figures_come_from() -> None:
    known = default_memory_coefficients()
    for name, stack in known.stacks.items():
        assert known.in_stack(name)  # its changes are figures of a profile
        assert len(stack.source) > 20, name


def test_internevo_steps_with_thirty_bytes_a_parameter() -> None:
    # 16-bit weights and gradients (2 + 2), master and moments (12), flattened 16-bit gradients and
    # their fp32 copy (2 + 4), denominator and root of a foreach Adam (8)
    training = BF16.model_copy(update={"stack": "internevo"})
    at = moment(Plan(software=Software.MEGATRON, zero_stage=1), training, "step")
    states = ("parameters", "gradients", "master", "optimizer", "step_transients")
    assert sum(at[k] for k in states) == pytest.approx(30 * GPT.params)


def test_nanotron_has_16_bit_buckets_of_replicas_beside_its_fp32_gradients() -> None:
    training = BF16.model_copy(update={"stack": "nanotron"})
    alone = moment(Plan(software=Software.MEGATRON), training, "backward_end")
    replicas = moment(Plan(software=Software.MEGATRON, dp=2), training, "backward_end")
    assert alone["gradients"] == pytest.approx(4 * GPT.params)
    assert replicas["gradients"] == pytest.approx((4 + 2) * GPT.params)


def test_the_reserved_bytes_of_a_stage_are_at_least_its_allocated_ones() -> None:
    found = detail(GPT, dgx(1), BF16, Plan(software=Software.MEGATRON, pp=4, grad_accum=8))
    assert len(found.reserved) == 4
    assert all(r > a for r, a in zip(found.reserved, found.allocated, strict=True))


def test_a_fused_loss_holds_16_bit_logits_and_their_gradient() -> None:
    plan = Plan(software=Software.FSDP, zero_stage=3, dp=8)
    fused = BF16.model_copy(update={"fused_loss": True})
    logits = 2048 * GPT.vocab
    assert moment(plan, fused, "loss")["logits"] == pytest.approx(4 * logits)
    assert moment(plan, BF16, "loss")["logits"] == pytest.approx(12 * logits)


def test_megatrons_zero_2_peaks_above_its_zero_1_on_two_gpus_without_overlap() -> None:
    # one bucket for all gradients, whole from the first on (megatron_fsdp.py, bucket_size None)
    two = Plan(software=Software.MEGATRON, zero_stage=2, dp=2, overlap_comm=False)
    assert moment(two, BF16, "layer")["gradients"] == pytest.approx((2 + 4) * GPT.params)
    assert moment(two, BF16, "save")["gradients"] == pytest.approx(2 * GPT.params)
    one = Plan(software=Software.MEGATRON, zero_stage=1, dp=2)
    peaks = [max(detail(GPT, dgx(1), BF16, plan).allocated) for plan in (one, two)]
    assert peaks[1] > peaks[0]


def test_with_overlap_as_many_gradients_wait_as_megatrons_queue_holds() -> None:
    # 10^9 elements and two buckets of 4 10^7 in fp32, beside this rank's half
    plan = Plan(software=Software.MEGATRON, zero_stage=2, dp=2)
    found = detail(model("llama-2-7b"), dgx(1), BF16, plan)
    at = {m.moment: m.categories["gradients"] for m in found.moments}
    params = model("llama-2-7b").params
    assert at["layer"] == pytest.approx(2 * params)
    assert at["backward_end"] == pytest.approx(2 * params + 4 * 1.08e9)


def test_fsdp_in_a_pipeline_keeps_weights_and_whole_gradients_until_the_last_micro_batch() -> None:
    # torch.distributed.pipelining.stage, backward_maybe_with_nosync: no reduction, no resharding
    plan = Plan(software=Software.FSDP, zero_stage=3, dp=4, pp=2, grad_accum=8)
    found = detail(GPT, dgx(1), BF16, plan)
    at = next(m.categories for m in found.moments if m.moment == "layer" and m.stage == 0)
    assert at["gathered"] == pytest.approx(2 * found.params[0])
    assert at["gradients"] == pytest.approx(4 * found.params[0])
    after = next(m.categories for m in found.moments if m.moment == "step" and m.stage == 0)
    assert after["gradients"] == pytest.approx(found.params[0])  # a quarter of them, in fp32


def test_llamas_trainer_keeps_what_products_gave_and_residuals() -> None:
    # per token: two residuals (4 h), query, key, value, output (2 x (2 + 2 / 8) h for a key head of
    # eight query heads), gate and up (2 x 2 x 3.5 h), and 4 bytes a head of softmax statistics
    spec = model("llama-3-70b")
    training = BF16.model_copy(update={"stack": "llama", "fused_norm": True})
    plan = Plan(software=Software.FSDP, zero_stage=3, dp=8)
    found = detail(spec, dgx(1), training, plan)
    at = next(m.categories for m in found.moments if m.moment == "layer")
    layer = 2048 * ((4 + 4.5 + 14) * 8192 + 4 * 64)
    assert at["activations"] == pytest.approx(80 * layer)


def test_what_the_head_keeps_is_gone_when_the_layers_come_back() -> None:
    plan = Plan(software=Software.MEGATRON)
    training = BF16.model_copy(update={"fused_norm": True})
    loss, layer = (moment(plan, training, name)["activations"] for name in ("loss", "layer"))
    assert loss - layer == pytest.approx(2048 * 4096 * (2 + 2))  # the last norm's input and output


def test_nemos_master_copy_is_the_other_half_of_a_bf16_weight() -> None:
    # megatron_base_model.py, store_param_remainders; fp16 weights have no such half
    for precision, size in (("bf16", 2), ("fp16", 4)):
        training = BF16.model_copy(update={"stack": "nemo", "precision": precision})
        at = moment(Plan(software=Software.MEGATRON, zero_stage=1), training, "step")
        assert at["master"] == pytest.approx(size * GPT.params)


def test_activations_around_a_4_bit_base_are_fp32_unless_deepspeeds_engine_casts() -> None:
    spec = model("llama-2-7b")

    def held(software: Software, stack: str | None, quantized: bool) -> float:
        lora = Lora(targets="attention", rank=8, quantized_base=quantized)
        training = BF16.model_copy(update={"lora": lora, "stack": stack})
        table = PlanTable.from_plans([Plan(software=software, zero_stage=3, dp=8)])
        return float(memory(spec, dgx(1), training, table).categories["activations"][0])

    litgpt = [held(Software.FSDP, "litgpt", quantized) for quantized in (True, False)]
    assert 1.5 < litgpt[0] / litgpt[1] < 2.0
    for software in (Software.DEEPSPEED, Software.FSDP):
        assert held(software, None, True) == held(software, None, False)


def test_dropout_before_adapters_keeps_a_mask_and_a_copy() -> None:
    plan = Plan(software=Software.FSDP, zero_stage=3, dp=8)
    plain = BF16.model_copy(update={"lora": Lora(targets="attention")})
    dropped = BF16.model_copy(update={"lora": Lora(targets="attention", dropout=0.05)})
    more = moment(plan, dropped, "loss")["activations"] - moment(plan, plain, "loss")["activations"]
    assert more == pytest.approx(3 * GPT.hidden * GPT.layers * 2048)


def test_a_model_loaded_whole_takes_8_bytes_a_parameter_and_rank_of_the_host() -> None:
    table = PlanTable.from_plans([Plan(dp=8, zero_stage=3)])
    whole = BF16.model_copy(update={"whole_at_load": True})
    spec = model("llama-2-7b")
    sharded = float(memory(spec, dgx(1), BF16, table).host_bytes[0])
    loaded = float(memory(spec, dgx(1), whole, table).host_bytes[0])
    # eight ranks of fp32 weights and the fp32 file, instead of one 16-bit model
    assert loaded - sharded == pytest.approx((8 * 8 - 2) * spec.params, rel=1e-6)


def test_a_4_bit_base_passes_through_the_host_file_by_file() -> None:
    """QLoRA of 70B on eight 48 GiB cards is run on hosts of 256 GiB: transformers gives every
    rank's base a device map of its own GPU, and reads files of at most 10 GB."""
    table = PlanTable.from_plans([Plan(dp=8, zero_stage=2)])
    spec = model("llama-2-70b")
    whole, quantized = (
        BF16.model_copy(update={"lora": Lora(quantized_base=q)}) for q in (False, True)
    )
    held = [float(memory(spec, dgx(1), t, table).host_bytes[0]) for t in (whole, quantized)]
    assert held[0] > 8 * 2 * spec.params
    assert held[1] < 130 * GIB
    assert held[0] - held[1] == pytest.approx(8 * (2 * spec.params - 10e9), rel=0.02)


def test_a_4_bit_base_loaded_whole_is_on_every_gpu_before_it_is_sharded() -> None:
    table = PlanTable.from_plans([Plan(dp=8, zero_stage=3, software=Software.FSDP)])
    lora = Lora(targets="attention", quantized_base=True)
    spec = model("llama-2-70b")
    at = [
        memory(
            spec, dgx(1), BF16.model_copy(update={"lora": lora, "whole_at_load": w}), table
        ).phases["init"][0]
        / GIB
        for w in (False, True)
    ]
    assert at[0] < 10
    assert at[1] > 35  # 69e9 parameters of half a byte and their constants


def test_outside_zero_init_the_engine_moves_the_whole_model_to_the_gpu() -> None:
    table = PlanTable.from_plans([Plan(dp=8, zero_stage=3)])
    spec = model("llama-2-7b")
    whole = BF16.model_copy(update={"whole_at_load": True})
    found = memory(spec, dgx(1), whole, table)
    assert found.categories["parameters"][0] < 2 * 2 * spec.params / 8  # no peak of the run
    outside = found.categories["framework"][0]
    assert found.phases["init"][0] == pytest.approx(1.03 * 2 * spec.params + outside)


def test_norms_of_queries_and_keys_are_kept() -> None:
    spec = model("qwen3-8b")
    layer = spec.kinds[0]
    assert layer.attention is not None
    assert layer.attention.qk_norm
    bare = layer.model_copy(
        update={"attention": layer.attention.model_copy(update={"qk_norm": False})}
    )
    without = spec.model_copy(update={"kinds": (bare,)})
    table = PlanTable.from_plans([Plan(dp=8, zero_stage=3, recompute=Recompute.NONE)])
    kept = [
        float(memory(s, dgx(1), BF16, table).categories["activations"][0]) for s in (spec, without)
    ]
    width = (layer.attention.heads + layer.attention.kv_heads) * layer.attention.head_dim
    assert kept[0] - kept[1] == pytest.approx(6 * width * 2048 * spec.layers)
