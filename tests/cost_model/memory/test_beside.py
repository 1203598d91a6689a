"""Host memory, communicators, coefficients, and how sure a prediction is."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from cost_model.calibration.memory import SoftwareMemory, default_memory_coefficients
from cost_model.catalogue import model
from cost_model.memory import fits_probability, host, interval, memory
from cost_model.memory.framework import communicators
from cost_model.memory.host import Away, offloaded_bytes, pinned_bytes
from cost_model.memory.uncertainty import _normal_cdf
from cost_model.plans import Plan, PlanTable, Software
from cost_model.specs import TrainingSpec
from tests.cost_model.memory.samples import GIB, dgx

TRAINING = TrainingSpec(seq_len=4096, global_batch=8)


def predicted(**knobs: object):  # type: ignore[no-untyped-def]
    table = PlanTable.from_plans([Plan(**knobs)])
    return memory(model("llama-2-7b"), dgx(8), TRAINING, table)


def test_pinned_memory_is_rounded_up_to_a_power_of_two() -> None:
    rounded = pinned_bytes(np.array([0.0, 1.0, 3 * GIB, 4 * GIB, 4.1 * GIB]))
    assert rounded.tolist() == [0, 1, 4 * GIB, 4 * GIB, 8 * GIB]


@pytest.mark.parametrize(
    ("knobs", "engine"),
    [
        ({"zero_stage": 1, "offload_optimizer": "cpu"}, 14.364),
        ({"zero_stage": 2, "offload_optimizer": "cpu"}, 14.364),
        ({"zero_stage": 3, "offload_optimizer": "cpu"}, 14.120),
        ({"zero_stage": 3, "offload_optimizer": "cpu", "offload_param": "cpu"}, 15.689),
    ],
)
def test_a_rank_offloads_as_many_bytes_as_the_engine(
    knobs: dict[str, object], engine: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed 0.19.8 on fake tensors, Llama-2-7B on 8 ranks: GiB on the host, before rounding."""
    monkeypatch.setattr(host, "pinned_bytes", lambda n_bytes: n_bytes)
    saved = 2 * model("llama-2-7b").params
    base = (8 * 4 + 8) * GIB  # processes and system, default coefficients
    found = predicted(dp=8, **knobs).host_bytes[0] - saved - base
    assert found / 8 / GIB == pytest.approx(engine, abs=0.002)


def test_each_pinned_tensor_is_rounded_by_itself() -> None:
    """ZeRO 2 pins master, 16-bit copy, gradient and one spare gradient: 4 + 2 + 4 + 0.25 GiB for
    3.14 + 1.57 + 3.14 + 0.24; moments (6.28) are pageable."""
    kept = predicted(dp=8, zero_stage=2).host_bytes[0]
    away = predicted(dp=8, zero_stage=2, offload_optimizer="cpu").host_bytes[0]
    states, saved = 8 * (10.25 * GIB + model("llama-2-7b").params), 2 * model("llama-2-7b").params
    loaded = 8 * saved
    assert away - kept == pytest.approx(states + saved - loaded)


def test_zero_3_pins_gradients_a_sub_group_at_a_time() -> None:
    """Llama-2-70B on 8 ranks: 8.62e9 elements each, in 8 sub-groups of 1e9 (4e9 bytes, pinned as
    4 GiB) and a rest of 0.62e9 (2.3 GiB, pinned as 4); the 16-bit gradient (16.06) as 32 GiB."""
    elements = model("llama-2-70b").params / 8
    away = Away(
        three=np.array([True]),
        optimizer_on_flash=np.array([False]),
        weights_on_flash=np.array([False]),
        ranks=np.array([8]),
        optimizer=(np.array([elements]), np.zeros(1)),
        weights=(np.zeros(1), np.zeros(1)),
        matrix=np.array([32000 * 8192.0]),
    )
    found, flash = offloaded_bytes(TRAINING, away)
    assert found[0] == pytest.approx((4 + 8) * elements + (8 * 4 + 4 + 32) * GIB)
    assert flash[0] == 0


def test_nvme_holds_what_the_host_does_not() -> None:
    flash = predicted(dp=8, zero_stage=3, offload_optimizer="nvme")
    assert flash.nvme_bytes[0] == pytest.approx(16 * model("llama-2-7b").params)
    assert flash.host_bytes[0] < predicted(dp=8, zero_stage=3, offload_optimizer="cpu").host_bytes


def test_each_axis_in_use_has_a_communicator_of_its_own() -> None:
    knobs: list[dict[str, int]] = [
        {},
        {"dp": 8},
        {"tp": 2, "dp": 4},
        {"tp": 2, "pp": 2, "dp": 2},
        {"dp": 8, "ep": 2},
    ]
    megatron = PlanTable.from_plans([Plan(software="megatron", **k) for k in knobs])
    assert communicators(megatron).tolist() == [0, 1, 3, 4, 2]
    deepspeed = PlanTable.from_plans([Plan(**k) for k in knobs])
    assert communicators(deepspeed).tolist() == [0, 2, 3, 4, 3]


def test_the_peak_is_a_coin_flip_where_it_equals_the_gpu() -> None:
    found = predicted(dp=8, zero_stage=2)
    node = dgx().node
    exact = node.gpu.model_copy(update={"memory_gib": found.total_bytes[0] / GIB})
    roomy = node.model_copy(update={"gpu": exact, "host_ram_gib": 1e6})
    where = dgx().model_copy(update={"node": roomy})
    assert fits_probability(found, where)[0] == pytest.approx(0.5, abs=1e-6)


def test_more_memory_is_never_less_likely_to_fit() -> None:
    found = predicted(dp=8, zero_stage=2)
    node = dgx().node
    chances = []
    for gib in (16, 24, 32, 40, 80):
        gpu = node.gpu.model_copy(update={"memory_gib": gib})
        where = dgx().model_copy(update={"node": node.model_copy(update={"gpu": gpu})})
        chances.append(fits_probability(found, where)[0])
    assert chances == sorted(chances)
    assert chances[0] < 0.01
    assert chances[-1] > 0.99


def test_a_node_without_flash_fits_no_nvme_offload() -> None:
    found = predicted(dp=8, zero_stage=3, offload_optimizer="nvme")
    node = dgx().node.model_copy(update={"nvme": None})
    assert fits_probability(found, dgx().model_copy(update={"node": node}))[0] == 0


def test_the_interval_is_symmetric_in_the_logarithm() -> None:
    found = predicted(dp=8, zero_stage=2)
    low, high = interval(found)
    assert low * high == pytest.approx(found.total_bytes**2)


def test_the_normal_distribution_is_that_of_math() -> None:
    z = np.linspace(-5, 5, 101)
    expected = [0.5 * (1 + math.erf(x / math.sqrt(2))) for x in z]
    np.testing.assert_allclose(_normal_cdf(z), expected, atol=1e-7)


def test_every_software_has_a_profile_and_unknown_figures_are_refused() -> None:
    known = default_memory_coefficients()
    for software in Software:
        profile = known.of(software)
        with pytest.raises(ValidationError):
            SoftwareMemory.model_validate({**profile.model_dump(), "fudge": 1.0})
