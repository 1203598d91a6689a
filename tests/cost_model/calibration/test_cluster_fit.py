"""A synthetic machine: the cost model under known factors, which the fit must find again."""

from collections.abc import Sequence

import numpy as np
import pytest

from cost_model.calibration import Coefficients
from cost_model.calibration.cluster import FACTORS, ClusterCalibration, scaled, uncalibrated
from cost_model.calibration.cluster_fit import fit
from cost_model.calibration.observations import (
    CollectiveObservation,
    KernelObservation,
    MemoryObservation,
    Observations,
    StepObservation,
    collective_seconds,
    kernel_seconds,
    step_seconds,
)
from cost_model.catalogue import cluster, model
from cost_model.memory import memory
from cost_model.plans import Plan, PlanTable
from cost_model.specs import ModelGeometry, ModelSpec, TrainingSpec

LOCAL = cluster("local-cpu")
A100 = cluster("dgx-a100-80g")
TRAINING = TrainingSpec(seq_len=128, global_batch=8, precision="fp32", attention="sdpa")
TRUE = {"gemm": -0.4, "memory": 0.3, "link_bandwidth": -1.2, "sharding": 1.0}
SHIPPED = Coefficients.default()


def small(layers: int = 4, hidden: int = 256) -> ModelSpec:
    return ModelGeometry(
        hidden=hidden, layers=layers, heads=4, intermediate=3 * hidden, vocab=4096
    ).spec()


def plan(**knobs: object) -> Plan:
    made = Plan.model_validate(knobs)
    return made.model_copy(update={"grad_accum": 8 // (made.dp * made.micro_batch)})


TRIED = (
    plan(dp=2, micro_batch=4),
    plan(dp=2, micro_batch=1, zero_stage=2),
    plan(dp=2, micro_batch=2, zero_stage=3),
    plan(tp=2, micro_batch=8, zero_stage=1),
    plan(pp=2, micro_batch=2, zero_stage=1, software="deepspeed_pipeline"),
    plan(dp=2, micro_batch=4, zero_stage=1, recompute="full"),
)
UNSEEN = (
    plan(dp=2, micro_batch=1, zero_stage=3),
    plan(tp=2, micro_batch=1, zero_stage=1),
    plan(dp=2, micro_batch=2, zero_stage=1, recompute="full"),
    plan(pp=2, micro_batch=1, zero_stage=1, software="deepspeed_pipeline"),
)


def truth(**factors: float) -> Coefficients:
    return scaled(SHIPPED, np.array([factors.get(name, 0.0) for name in FACTORS]))


def measured(
    plans: Sequence[Plan], of: ModelSpec, known: Coefficients
) -> tuple[StepObservation, ...]:
    bare = [StepObservation(of, TRAINING, p, 1.0) for p in plans]
    times = step_seconds(LOCAL, bare, known)
    pairs = zip(plans, times, strict=True)
    return tuple(StepObservation(of, TRAINING, p, float(t)) for p, t in pairs)


def error(calibration: ClusterCalibration, of: ModelSpec, known: Coefficients) -> float:
    seen = measured(UNSEEN, of, known)
    said = step_seconds(LOCAL, seen, calibration.apply(SHIPPED))
    return float(np.abs(said / np.array([s.seconds for s in seen]) - 1).max())


@pytest.fixture(scope="module")
def fitted() -> ClusterCalibration:
    seen = Observations(steps=measured(TRIED, small(), truth(**TRUE)))
    return fit(uncalibrated(LOCAL), LOCAL, seen, n_trials=6)


def test_six_trials_predict_other_plans_depths_and_widths(fitted: ClusterCalibration) -> None:
    known = truth(**TRUE)
    before = uncalibrated(LOCAL)
    for of in (small(), small(layers=8), small(hidden=512)):
        assert error(before, of, known) > 0.25
        assert error(fitted, of, known) < 0.10


def test_a_factor_that_the_trials_show_is_found(fitted: ClusterCalibration) -> None:
    moved = np.log(fitted.factors["sharding"] / fitted.factors["link_bandwidth"])
    assert moved == pytest.approx(TRUE["sharding"] - TRUE["link_bandwidth"], abs=0.6)
    assert fitted.deviations["sharding"] < uncalibrated(LOCAL).deviations["sharding"]


def test_a_factor_that_no_trial_shows_stays_where_it_was(fitted: ClusterCalibration) -> None:
    for name in ("network_bandwidth", "network_latency", "offload"):
        assert fitted.factors[name] == pytest.approx(1.0)
        assert fitted.deviations[name] == pytest.approx(uncalibrated(LOCAL).deviations[name])


def test_the_interval_narrows_with_trials_that_agree(fitted: ClusterCalibration) -> None:
    assert fitted.spread < uncalibrated(LOCAL).spread / 4
    assert fitted.n_trials == 6


def test_one_trial_moves_no_factor_further_than_it_must() -> None:
    known = truth(gemm=-0.4)
    seen = Observations(steps=measured(TRIED[:1], small(), known))
    one = fit(uncalibrated(LOCAL), LOCAL, seen, n_trials=1)
    deviations = uncalibrated(LOCAL).deviations
    for name, value in zip(FACTORS, one.log_factors, strict=True):
        assert abs(value) < 0.75 * deviations[name]
    said = step_seconds(LOCAL, seen.steps, one.apply(SHIPPED))[0]
    assert said == pytest.approx(seen.steps[0].seconds, rel=0.05)


def test_scatter_that_no_factor_explains_widens_the_residual() -> None:
    exact = measured(TRIED, small(), truth(**TRUE))
    noisy = tuple(
        StepObservation(s.model, s.training, s.plan, s.seconds * np.exp(0.3 * (-1) ** i))
        for i, s in enumerate(exact)
    )
    calm = fit(uncalibrated(LOCAL), LOCAL, Observations(steps=exact), n_trials=6)
    wild = fit(uncalibrated(LOCAL), LOCAL, Observations(steps=noisy), n_trials=6)
    assert wild.residual > 1.5 * calm.residual


def test_one_disturbed_trial_among_six_does_not_spoil_the_others() -> None:
    known = truth(**TRUE)
    seen = list(measured(TRIED, small(), known))
    first = seen[0]
    seen[0] = StepObservation(first.model, first.training, first.plan, 3 * first.seconds)
    calibration = fit(uncalibrated(LOCAL), LOCAL, Observations(steps=tuple(seen)), n_trials=6)
    assert error(calibration, small(), known) < 0.35


def test_a_trial_that_ran_out_of_time_says_that_steps_take_at_least_so_long() -> None:
    bare = StepObservation(small(), TRAINING, TRIED[0], 1.0)
    said = float(step_seconds(LOCAL, [bare], SHIPPED)[0])

    def after(seconds: float) -> float:
        bound = StepObservation(small(), TRAINING, TRIED[0], seconds, at_least=True)
        found = fit(uncalibrated(LOCAL), LOCAL, Observations(steps=(bound,)), n_trials=1)
        return float(step_seconds(LOCAL, [bare], found.apply(SHIPPED))[0])

    assert after(3 * said) > 1.5 * said
    assert after(said / 3) == pytest.approx(said)


def test_a_sweep_tells_the_links_before_any_step_does() -> None:
    known = truth(link_bandwidth=-1.5, link_latency=0.7)
    sizes = (2**14, 2**17, 2**20, 2**23)
    bare = [
        CollectiveObservation(kind, 2, 1, size, 1.0)
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p")
        for size in sizes
    ]
    times = collective_seconds(LOCAL, bare, known)
    sweep = tuple(
        CollectiveObservation(b.kind, b.ranks, b.stride, b.n_bytes, float(t))
        for b, t in zip(bare, times, strict=True)
    )
    found = fit(uncalibrated(LOCAL), LOCAL, Observations(collectives=sweep), n_trials=1)
    assert np.log(found.factors["link_bandwidth"]) == pytest.approx(-1.5, abs=0.4)
    assert np.log(found.factors["link_latency"]) == pytest.approx(0.7, abs=0.4)
    assert found.factors["gemm"] == pytest.approx(1.0)


def test_kernels_alone_tell_products_from_memory() -> None:
    known = truth(gemm=-0.8, memory=0.6)
    bare = [
        KernelObservation("gemm", 1.0, m=512, n=768, k=256),
        KernelObservation("gemm", 1.0, m=512, n=256, k=768),
        KernelObservation("gemm", 1.0, m=256, n=768, k=512),
        KernelObservation("stream", 1.0, n_bytes=2**25),
    ]
    times = kernel_seconds(LOCAL, bare, TRAINING, known)
    kernels = tuple(
        KernelObservation(b.kind, float(t), b.m, b.n, b.k, b.n_bytes)
        for b, t in zip(bare, times, strict=True)
    )
    seen = Observations(kernels=kernels, kernel_training=TRAINING)
    found = fit(uncalibrated(LOCAL), LOCAL, seen, n_trials=1)
    assert np.log(found.factors["gemm"]) < -0.3
    assert np.log(found.factors["memory"]) > 0.2


LLAMA = model("llama-2-7b")
LONG = TrainingSpec(seq_len=4096, global_batch=8)


def held(plan_: Plan, calibration: ClusterCalibration) -> float:
    table = PlanTable.from_plans([plan_])
    found = memory(LLAMA, A100, LONG, table, calibration.apply_memory())
    return float(found.total_bytes[0])


def test_measured_peaks_move_what_is_predicted_to_be_held() -> None:
    one = Plan(dp=8, zero_stage=3)
    table = PlanTable.from_plans([one])
    allocated = float(memory(LLAMA, A100, LONG, table).allocated_bytes[0])
    before = uncalibrated(A100)
    seen = MemoryObservation(LLAMA, LONG, one, 1.1 * allocated)
    after = fit(before, A100, Observations(memory=(seen,) * 4), n_trials=4)
    assert held(one, after) > 1.05 * held(one, before)


def test_measured_peaks_that_agree_make_the_interval_narrower() -> None:
    one = Plan(dp=8, zero_stage=3)
    table = PlanTable.from_plans([one])
    allocated = float(memory(LLAMA, A100, LONG, table).allocated_bytes[0])
    before = uncalibrated(A100)
    seen = MemoryObservation(LLAMA, LONG, one, allocated)
    after = fit(before, A100, Observations(memory=(seen,) * 4), n_trials=4)
    assert after.memory_sigma is not None
    assert after.memory_sigma < 0.8 * before.apply_memory().spread.sigma
    assert held(one, after) == pytest.approx(held(one, before), rel=0.01)


def test_a_trial_that_ran_out_of_memory_raises_what_it_was_said_to_need() -> None:
    tight = Plan(dp=1, zero_stage=0, recompute="full")  # type: ignore[arg-type]
    roomy = Plan(dp=8, zero_stage=3, recompute="full")  # type: ignore[arg-type]
    before = uncalibrated(A100)
    total = held(tight, before)
    capacity = total / 2**30 * 1.08  # it was predicted to fit, with eight per cent to spare
    gpu = A100.node.gpu.model_copy(update={"memory_gib": capacity})
    small_gpu = A100.model_copy(update={"node": A100.node.model_copy(update={"gpu": gpu})})
    died = MemoryObservation(LLAMA, LONG, tight, None)
    after = fit(uncalibrated(small_gpu), small_gpu, Observations(memory=(died,)), n_trials=1)
    assert held(tight, after) > 1.02 * total
    out = MemoryObservation(LLAMA, LONG, roomy, None)
    assert held(roomy, fit(before, A100, Observations(memory=(out,)), n_trials=1)) > held(
        roomy, before
    )
