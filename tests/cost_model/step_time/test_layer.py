"""What a layer's kernels cost, by what the software around them does."""

from typing import Any, Literal

import pytest

from cost_model import catalogue
from cost_model.calibration import Coefficients
from cost_model.compute import Rates, layer_times
from cost_model.compute.attention import scores_seconds
from cost_model.compute.layer import LayerTimes
from cost_model.compute.profile import passes
from cost_model.plans import Plan, PlanTable
from cost_model.specs import ModelSpec, TrainingSpec, explicit

GPU = catalogue.cluster("dgx-a100-80g", 1).node.gpu


def gpt(hidden: int, heads: int, family: Literal["decoder", "encoder"] = "decoder") -> ModelSpec:
    return explicit(
        family=family,
        hidden=hidden,
        layers=24,
        heads=heads,
        vocab=51200,
        gated=False,
        max_seq_len=2048,
    )


def table(**plan: Any) -> PlanTable:
    return PlanTable.from_plans([Plan.model_validate({"nodes": 1, "dp": 8} | plan)])


def times(model: ModelSpec, training: TrainingSpec, **plan: Any) -> LayerTimes:
    rates = Rates.of(GPU, training, Coefficients.default())
    return layer_times(model, model.kinds[0], training, table(**plan), rates)


def test_pytorch_recomputes_all_of_a_layer_but_its_last_product() -> None:
    # of 24 b s h^2 FLOPs of a layer's products (arXiv 2104.04473, appendix) the last has 8
    training = TrainingSpec(seq_len=128, global_batch=8, attention="flash2")
    model = gpt(16384, 128)
    whole = times(model, training, software="megatron_deepspeed", micro_batch=64)
    early = times(model, training, software="fsdp", micro_batch=64)
    assert whole.again_forward[0] == pytest.approx(whole.forward[0])
    assert early.again_forward[0] / early.forward[0] == pytest.approx(2 / 3, abs=0.03)


def test_a_softmax_that_the_fused_kernel_does_not_take_has_more_operators() -> None:
    # 16 heads over 8 ranks: two a rank, and the kernel takes four at a time
    training = TrainingSpec(seq_len=1024, global_batch=8, attention="fused_softmax")
    model = gpt(1024, 16)
    loose, fused = (
        times(model, training, software="megatron", dp=1, tp=8, micro_batch=b).operators[0]
        for b in (1, 2)
    )
    assert loose - fused == 6


def test_an_encoders_softmax_passes_memory_less_often_than_a_decoders() -> None:
    # a decoder casts to fp32 and back, 17 and 16 passes of 2 bytes against 6 and 5
    training = TrainingSpec(seq_len=2048, global_batch=8, attention="eager")
    rates = Rates.of(GPU, training, Coefficients.default())
    kinds = [gpt(2048, 16).kinds[0], gpt(2048, 16, "encoder").kinds[0]]
    micro = table(micro_batch=4).micro_batch.astype(float)
    both = []
    for kind in kinds:
        assert kind.attention is not None
        forward, backward = scores_seconds(kind.attention, training, rates, micro)
        both.append(float(forward[0] + backward[0]))
    one_pass = 16 * 4 * 2048**2 * 2 / rates.bytes_per_s
    assert both[0] - both[1] == pytest.approx(22 * one_pass)


def test_megatrons_layer_norm_reads_a_row_once_on_the_way_back() -> None:
    training = TrainingSpec(seq_len=2048, global_batch=8)
    model = gpt(2048, 16)
    megatron, other = (
        passes(model, model.kinds[0], training, table(software=s).software, table().compile)
        for s in ("megatron", "deepspeed")
    )
    assert megatron.norm_backward[0] == other.norm_backward[0] / 2
