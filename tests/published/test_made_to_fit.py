"""Large runs that were published fitted: the cost model must say so."""

import numpy as np
import pytest

from tests.published.made_to_fit import RUNS, Run


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_that_was_made_fit_is_told_to_fit(run: Run) -> None:
    said = run.prediction()
    assert said.fits[0], f"{said.memory.total_bytes[0] / 2**30:.1f} GiB"
    assert said.fits_probability[0] > 0.7


def test_their_step_times_are_right_on_average() -> None:
    timed = [run for run in RUNS if run.seconds is not None]
    errors = [run.prediction().step.seconds[0] / run.seconds - 1 for run in timed if run.seconds]
    assert len(errors) >= 10
    assert float(np.abs(errors).mean()) < 0.15
