"""The prediction of everything, with its intervals."""

import numpy as np
import pytest

from cost_model import catalogue
from cost_model import predict as module
from cost_model.plans import PlanTable
from cost_model.predict import predict
from cost_model.specs import Gpu, TrainingSpec

TRAINING = TrainingSpec(seq_len=2048, global_batch=128)
MODEL = catalogue.model("llama-2-7b")


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = PlanTable.from_columns(
        50, tp=np.resize([1, 2, 4], 50), dp=2, zero_stage=np.resize([0, 1, 2, 3], 50), software=3
    )
    cluster = catalogue.cluster("dgx-a100-80g", 1)
    whole = predict(MODEL, cluster, TRAINING, table)
    monkeypatch.setattr(module, "BLOCK", 7)
    parts = predict(MODEL, cluster, TRAINING, table)
    assert parts.step.seconds == pytest.approx(whole.step.seconds)
    assert parts.memory.total_bytes == pytest.approx(whole.memory.total_bytes)
    assert parts.step.parts["compute"] == pytest.approx(whole.step.parts["compute"])


def test_the_interval_holds_the_prediction_and_is_wider_for_a_gpu_never_measured() -> None:
    table = PlanTable.from_columns(1, dp=8, zero_stage=3, micro_batch=4)
    known = catalogue.cluster("dgx-a100-80g", 1)
    unknown_gpu = known.node.gpu.model_copy(update={"name": "a100-of-another-name"})
    unknown = known.model_copy(update={"node": known.node.model_copy(update={"gpu": unknown_gpu})})
    a, b = (predict(MODEL, c, TRAINING, table) for c in (known, unknown))
    assert a.seconds_low[0] < a.step.seconds[0] < a.seconds_high[0]
    assert b.seconds_high[0] / b.seconds_low[0] > a.seconds_high[0] / a.seconds_low[0]


def test_a_gpu_known_only_by_its_data_sheet_is_predicted_by_its_architecture() -> None:
    gpu = Gpu(
        name="x200",
        memory_gib=100,
        bf16_tflops=500,
        fp16_tflops=500,
        fp32_tflops=50,
        memory_bandwidth_gb_per_s=2500,
        sms=120,
    )
    base = catalogue.cluster("dgx-a100-80g", 1)
    cluster = base.model_copy(update={"node": base.node.model_copy(update={"gpu": gpu})})
    table = PlanTable.from_columns(1, dp=8, zero_stage=3, micro_batch=4)
    mfu = predict(MODEL, cluster, TRAINING, table).step.mfu[0]
    assert 0.2 < mfu < 0.8
