"""The calibration of the closed loop, from its measured cases."""

from collections.abc import Sequence

from cost_model.calibration import Coefficients
from cost_model.calibration.cluster import ClusterCalibration, uncalibrated
from cost_model.calibration.cluster_fit import fit
from cost_model.calibration.observations import (
    CollectiveObservation,
    KernelObservation,
    Observations,
    StepObservation,
    step_seconds,
)
from cost_model.specs import ClusterSpec
from tests.benchmarks.closed.measure import Measured
from tests.benchmarks.closed.plans import Case


def calibrate(cluster: ClusterSpec, seen: Sequence[tuple[Case, Measured]]) -> ClusterCalibration:
    """What the trials teach; each counts once, its sweep besides."""
    steps = [
        StepObservation(case.model, case.training, case.plan, got.seconds)
        for case, got in seen
        if got.seconds is not None
    ]
    sweep = [
        CollectiveObservation(c["kind"], c["ranks"], 1, c["n_bytes"], c["seconds"])
        for _, got in seen
        for c in got.sweep
    ]
    kernels = [KernelObservation(**k) for _, got in seen for k in got.kernels]
    told = Observations(tuple(steps), tuple(sweep), tuple(kernels), seen[0][0].training)
    return fit(uncalibrated(cluster), cluster, told, n_trials=len(seen))


def predicted(cluster: ClusterSpec, case: Case, calibration: ClusterCalibration) -> float:
    """Seconds of one step of the case."""
    one = StepObservation(case.model, case.training, case.plan, 1.0)
    known = calibration.apply(Coefficients.default())
    return float(step_seconds(cluster, [one], known)[0])
