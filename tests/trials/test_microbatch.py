"""The micro-batch grows while there is room and shrinks when it hurts."""

import pytest

from trials.microbatch import AdaptiveMicroBatch, StepReport

IDLE, BUSY = StepReport(utilisation=0.4), StepReport(utilisation=0.9)


def test_five_idle_steps_in_a_row_grow_it_by_one() -> None:
    adaptive = AdaptiveMicroBatch(samples_per_rank=8)
    assert [adaptive.after_step(IDLE) for _ in range(5)] == [False] * 4 + [True]
    assert adaptive.before_step() == (2, 4)


def test_a_busy_step_between_idle_ones_starts_the_count_anew() -> None:
    adaptive = AdaptiveMicroBatch(samples_per_rank=8)
    for report in [IDLE] * 4 + [BUSY] + [IDLE] * 4:
        assert not adaptive.after_step(report)


def test_out_of_memory_shrinks_it_and_is_not_tried_again() -> None:
    adaptive = AdaptiveMicroBatch(samples_per_rank=8, micro_batch=4)
    assert adaptive.after_step(StepReport(utilisation=0.4, out_of_memory=True))
    assert adaptive.micro_batch == 2
    for _ in range(20):
        adaptive.after_step(IDLE)
    assert adaptive.micro_batch == 2
    assert adaptive.settled


def test_long_waits_for_communication_shrink_it() -> None:
    adaptive = AdaptiveMicroBatch(samples_per_rank=8, micro_batch=2)
    adaptive.after_step(StepReport(utilisation=0.9, communication_s=0.101))
    assert adaptive.micro_batch == 1


def test_only_divisors_of_the_samples_are_tried() -> None:
    assert AdaptiveMicroBatch(samples_per_rank=12).ladder == [1, 2, 3, 4, 6]


def test_a_start_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of"):
        AdaptiveMicroBatch(samples_per_rank=8, micro_batch=3)
