"""Predictions against DeepSpeed's own engine, run on fake tensors with the exported config.

The figures are those of the engine (engine.json; `python -m tests.benchmarks.dryrun --run` measures
them again).
"""

import numpy as np
import pytest

from cost_model.memory.sub_groups import EXPERT_GROUP, reached_share
from tests.benchmarks.dryrun import Run, on_file

RUNS = on_file()
LABELS = [run.label for run in RUNS]


@pytest.mark.parametrize("run", RUNS, ids=LABELS)
def test_the_peak_is_the_engines_within_three_per_cent(run: Run) -> None:
    assert run.predicted()["peak"] == pytest.approx(run.peak, rel=0.03)


@pytest.mark.parametrize("run", RUNS, ids=LABELS)
def test_what_stays_between_steps_is_the_engines(run: Run) -> None:
    """But for what a pipeline's stages last sent each other (tens of MiB)."""
    assert run.predicted()["steady"] == pytest.approx(run.steady, rel=0.025, abs=0.05)


@pytest.mark.parametrize("run", [r for r in RUNS if r.init > 0], ids=lambda r: r.label)
def test_what_the_start_takes_is_the_engines(run: Run) -> None:
    assert run.predicted()["init"] == pytest.approx(run.init, rel=0.03, abs=0.25)


@pytest.mark.parametrize("run", RUNS, ids=LABELS)
def test_no_phase_is_far_from_the_engines(run: Run) -> None:
    """With accumulation the engine's step includes what its earlier micro-batches leave, unless a
    pipeline reduces all at the end."""
    said = run.predicted()
    assert said["forward_backward"] == pytest.approx(run.forward_backward, rel=0.06)
    reduces = run.plan.get("pp", 1) > 1 or run.plan.get("grad_accum", 1) == 1
    if reduces and not run.training.get("fp32_grad_accum"):
        assert said["step"] == pytest.approx(run.step, rel=0.03)


def test_the_runs_cover_every_stage_offload_and_layout() -> None:
    plans = [run.plan for run in RUNS]
    assert {p.get("zero_stage") for p in plans} == {0, 1, 2, 3}
    assert {r.model for r in RUNS} >= {"llama-2-7b", "llama-2-13b", "llama-3.1-8b", "mixtral-8x7b"}
    for knob in ("tp", "pp", "sp", "cp", "grad_accum", "offload_optimizer", "offload_param"):
        assert any(knob in p for p in plans), knob


@pytest.mark.parametrize(
    ("matrices", "ranks"), [(3, 8), (3, 3), (3, 6), (3, 2), (1, 4), (7, 5), (12, 8), (3, 64)]
)
def test_the_rank_with_most_expert_gradients_reaches_into_as_many_as_a_count_says(
    matrices: int, ranks: int
) -> None:
    matrix = EXPERT_GROUP // matrices
    touched = [
        len({place // ranks for place in range(rank * matrices, (rank + 1) * matrices)})
        for rank in range(ranks)
    ]  # matrices of `ranks` units each, parts of `matrices` units
    share = float(reached_share(matrix, np.array([float(ranks)]))[0])
    assert share * matrices / ranks == pytest.approx(max(touched))
