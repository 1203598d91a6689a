"""The closed loop on this machine as a cluster: two ranks on its processor, over gloo.

    python -m tests.benchmarks.closed_loop [--json FILE] [--first] [--rounds 3]

First, six trials calibrate, and the step times of plans of other kinds, micro-batches, depths and
widths are predicted and then measured. Second, every plan of a small space is measured, and a
campaign that knows nothing of it chooses one. Third, a campaign of ten trials is timed. Of each
plan the fastest of several runs counts, minutes apart: others on the machine make a run slower and
never faster. `--first` (root) runs the ranks in real time, before all other work.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from cost_model.calibration.cluster import uncalibrated
from tests.benchmarks.closed.measure import Bench, Measured
from tests.benchmarks.closed.plans import CALIBRATION, UNSEEN, Case, small_space
from tests.benchmarks.closed.predicting import calibrate, predicted
from trials.campaign import CampaignSettings, run

TARGET = 0.15
"""Median error of unseen plans."""
NEAR = 0.05
"""How much slower than the best of the space the campaign's choice may be."""
CAMPAIGN_S = 60.0
"""Ten trials, warm."""


def main() -> None:
    """Prints the three parts; exit status 1 where one misses its mark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--record", type=Path, help="keep measurements there, and reuse them")
    parser.add_argument("--first", action="store_true", help="ranks before other work (root)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each plan")
    parser.add_argument("--parts", default="123", help="which of the three parts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="closed-") as folder:
        bench = Bench(
            Path(folder),
            rounds=options.rounds,
            record=options.record,
            first=options.first,
        )
        with bench:
            found: dict[str, Any] = {}
            if "1" in options.parts:
                found["prediction"] = prediction(bench)
            if "2" in options.parts:
                found["choice"] = choice(bench)
            if "3" in options.parts:
                found["ten_trials"] = ten_trials(bench)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), "utf-8")
    if not all(part["reached"] for part in found.values()):
        raise SystemExit(1)


def prediction(bench: Bench) -> dict[str, Any]:
    """Six trials, then the error of plans that were not among them."""
    print("calibration trials")
    every = bench.measure((*CALIBRATION, *UNSEEN))
    seen = list(zip(CALIBRATION, every, strict=False))
    for case, got in seen:
        _show(case, got)
    calibration = calibrate(bench.cluster, seen)
    before = uncalibrated(bench.cluster)
    print("\nunseen plans                                  measured shipped calibrated  error")
    rows = []
    for case, got in zip(UNSEEN, every[len(CALIBRATION) :], strict=True):
        if got.seconds is None:
            print(f"{case.name:44s} {got.outcome}")
            continue
        raw = predicted(bench.cluster, case, before)
        now = predicted(bench.cluster, case, calibration)
        error = now / got.seconds - 1
        print(
            f"{case.name:44s} {got.seconds:8.3f} {raw:8.3f} {now:8.3f}  {error:+6.1%}"
            f"  scatter {got.scatter:.0%}"
        )
        rows.append({"name": case.name, "seconds": got.seconds, "shipped": raw, "calibrated": now})
    errors = np.array([abs(r["calibrated"] / r["seconds"] - 1) for r in rows])
    raw_errors = np.array([abs(r["shipped"] / r["seconds"] - 1) for r in rows])
    median = float(np.median(errors))
    print(
        f"median error {median:.1%} (shipped coefficients {np.median(raw_errors):.1%}), "
        f"largest {errors.max():.1%}, over {len(rows)} unseen plans; wanted {TARGET:.0%}"
    )
    print("factors", {n: round(v, 2) for n, v in calibration.factors.items()})
    return {
        "median": median,
        "median_shipped": float(np.median(raw_errors)),
        "largest": float(errors.max()),
        "residual": calibration.residual,
        "rows": rows,
        "reached": median <= TARGET,
    }


def choice(bench: Bench) -> dict[str, Any]:
    """What a campaign chooses of a space in which every plan was measured."""
    resolved, cases = small_space()
    print(f"\nthe whole space: {len(cases)} plans")
    times = {}
    for case, got in zip(cases, bench.measure(cases), strict=True):
        _show(case, got)
        if got.seconds is not None:
            times[case.plan] = got.seconds
    best = min(times, key=lambda plan: times[plan])
    state = run(resolved, CampaignSettings(max_trials=6), "closed", bench.executor)
    assert state.best is not None
    chosen = times[state.best]
    slower = chosen / times[best] - 1
    print(
        f"campaign: {len(state.trials)} trials, {state.ended}, confidence {state.confidence:.2f}; "
        f"its choice takes {chosen:.3f} s, the best {times[best]:.3f} s: {slower:+.1%}"
    )
    tried = {trial.plan for trial in state.trials}
    errors = [
        abs(predicted(bench.cluster, case, state.calibration) / times[case.plan] - 1)
        for case in cases
        if case.plan in times and case.plan not in tried
    ]
    median = float(np.median(errors))
    print(f"what it learned predicts the {len(errors)} plans it did not try within {median:.1%}")
    return {
        "median_untried": median,
        "plans": len(times),
        "trials": len(state.trials),
        "ended": state.ended,
        "slower": slower,
        "reached": slower <= NEAR,
    }


def ten_trials(bench: Bench) -> dict[str, Any]:
    """How long ten trials take once the workers are warm."""
    resolved, _ = small_space()
    settings = CampaignSettings(max_trials=10, confidence=1.0)
    began = time.monotonic()
    state = run(resolved, settings, "ten", bench.executor)
    seconds = time.monotonic() - began
    print(f"\nten trials: {len(state.trials)} took {seconds:.1f} s; wanted {CAMPAIGN_S:.0f} s")
    return {"trials": len(state.trials), "seconds": seconds, "reached": seconds <= CAMPAIGN_S}


def _show(case: Case, got: Measured) -> None:
    what = got.outcome if got.seconds is None else f"{got.seconds:8.3f} s"
    print(f"{case.name:44s} {what}  scatter {got.scatter:.0%}", flush=True)


if __name__ == "__main__":
    main()
