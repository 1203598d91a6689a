import pytest

from cost_model.calibration.observations import STEP_NOISE
from cost_model.plans import Plan
from tests.trials.campaign.machine import many_gpus, measured_step, request
from trials.campaign import CampaignSettings, CampaignTrial
from trials.campaign.observe import measured, observations
from trials.outcome import Outcome
from trials.result import (
    CollectiveMeasurement,
    KernelMeasurement,
    MemoryMeasurement,
    RankReport,
    TrialResult,
)

SETTINGS = CampaignSettings(steps=5, warmup_steps=1, trial_timeout_s=60)


def report(rank: int, *seconds: float, device: str = "a GPU", allocated: int = 0) -> RankReport:
    held = MemoryMeasurement(phase="backward", allocated=allocated, reserved=0, host=1)
    return RankReport(
        rank=rank,
        host="here",
        device=device,
        outcome=Outcome(kind="ok"),
        steps=tuple(measured_step(s) for s in seconds),
        memory=(held,),
    )


def pending(**plan: object) -> CampaignTrial:
    made = Plan.model_validate(plan)
    return CampaignTrial(trial_id="c-000", plan=made, predicted_seconds=1.0, predicted_bytes=1.0)


def result(*ranks: RankReport, kind: str = "ok", phase: str | None = None) -> TrialResult:
    outcome = Outcome(kind=kind, phase=phase)  # type: ignore[arg-type]
    return TrialResult(trial_id="c-000", outcome=outcome, ranks=ranks, wall_seconds=4.0)


def test_the_slowest_rank_and_the_fullest_one_count() -> None:
    ranks = (report(0, 1.0, 1.0, 1.0, allocated=5), report(1, 2.0, 2.0, 2.0, allocated=7))
    seen = measured(pending(dp=2), result(*ranks), many_gpus(1).cluster)
    assert seen.measured_seconds == 2.0
    assert seen.measured_bytes == 7
    assert seen.wall_seconds == 4.0
    assert seen.noise == STEP_NOISE


def test_steps_that_scatter_are_trusted_less() -> None:
    calm = measured(pending(), result(report(0, 1.0, 1.01, 0.99, 1.0, 1.0)), many_gpus(1).cluster)
    wild = measured(pending(), result(report(0, 1.0, 1.6, 0.7, 1.3, 1.0)), many_gpus(1).cluster)
    assert wild.noise > 5 * calm.noise


def test_groups_of_the_sweep_lie_as_far_apart_as_the_mesh_lays_them() -> None:
    swept = tuple(
        CollectiveMeasurement(axis=axis, ranks=2, kind="all_reduce", n_bytes=1024, seconds=1e-3)
        for axis in ("tp", "sp", "dp", "pp")
    )
    one = report(0, 1.0).model_copy(update={"collectives": swept})
    resolved = many_gpus(1)
    plan = {"tp": 2, "sp": 2, "dp": 2, "pp": 2}
    trial = measured(pending(**plan), result(one), resolved.cluster)
    seen = observations(resolved, SETTINGS, [trial])
    assert [c.stride for c in seen.collectives] == [1, 2, 4, 8]


def test_a_hang_in_training_bounds_the_step_and_a_hang_at_the_start_says_nothing() -> None:
    resolved = request()
    slow = measured(pending(dp=2), result(kind="hang", phase="backward"), resolved.cluster)
    stuck = measured(pending(dp=2), result(kind="hang", phase="init"), resolved.cluster)
    (bound,) = observations(resolved, SETTINGS, [slow]).steps
    assert bound.at_least
    assert bound.seconds == pytest.approx(10.0)  # a minute over six steps
    assert observations(resolved, SETTINGS, [stuck]).steps == ()


def test_out_of_gpu_memory_is_a_bound_on_memory() -> None:
    resolved = many_gpus(1)
    died = measured(pending(dp=8), result(kind="out_of_gpu_memory"), resolved.cluster)
    (one,) = observations(resolved, SETTINGS, [died]).memory
    assert one.allocated_bytes is None


def test_kernels_are_handed_on_with_their_precision() -> None:
    resolved = request()
    kernel = KernelMeasurement(kind="gemm", seconds=1e-3, m=8, n=8, k=8)
    one = report(0, 1.0, device="cpu").model_copy(update={"kernels": (kernel,)})
    trial = measured(pending(dp=2), result(one), resolved.cluster)
    seen = observations(resolved, SETTINGS, [trial])
    assert [(k.kind, k.m) for k in seen.kernels] == [("gemm", 8)]
    assert seen.kernel_training is not None
    assert seen.kernel_training.precision == "fp32"


def test_nothing_is_read_of_a_trial_on_another_device() -> None:
    gpus = many_gpus(1)
    trial = measured(pending(dp=2), result(report(0, 1.0, device="cpu")), gpus.cluster)
    seen = observations(gpus, SETTINGS, [trial])
    assert (seen.steps, seen.memory, seen.collectives, seen.kernels) == ((), (), (), ())
