"""The micro-batch grows while there is room, shrinks when it hurts, and settles."""

from collections.abc import Callable

import pytest

from trials.microbatch import AdaptiveMicroBatch, Limits, Saturation, StepReport

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


def test_out_of_memory_in_the_smallest_size_changes_nothing() -> None:
    assert not AdaptiveMicroBatch(8).after_step(StepReport(out_of_memory=True))


def test_long_waits_for_communication_shrink_it() -> None:
    adaptive = AdaptiveMicroBatch(samples_per_rank=8, micro_batch=2)
    adaptive.after_step(StepReport(utilisation=0.9, communication_s=0.101))
    assert adaptive.micro_batch == 1


def test_only_divisors_of_the_samples_are_tried_where_the_global_batch_is_kept() -> None:
    assert AdaptiveMicroBatch(samples_per_rank=12).ladder == [1, 2, 3, 4, 6]
    assert AdaptiveMicroBatch(12, keep="grad_accum").ladder == [1, 2, 3, 4, 5, 6, 7, 8]


def test_with_the_accumulation_kept_it_grows_by_one_sequence() -> None:
    adaptive = AdaptiveMicroBatch(8, limits=Limits(patience=1), keep="grad_accum")
    sizes = []
    for _ in range(9):
        sizes.append(adaptive.before_step())
        adaptive.after_step(IDLE)
    assert sizes == [(m, 8) for m in (1, 2, 3, 4, 5, 6, 7, 8, 8)]


@pytest.mark.parametrize(("size", "message"), [(3, "must divide"), (16, "must be one of")])
def test_a_start_that_cannot_be_is_refused(size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdaptiveMicroBatch(samples_per_rank=16, micro_batch=size)


def test_bounds_that_cross_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        AdaptiveMicroBatch(8, limits=Limits(smallest=4, largest=2))


def settle(
    adaptive: AdaptiveMicroBatch, respond: Callable[[int], StepReport], steps: int = 60
) -> list[int]:
    """The sizes of so many steps of a machine that responds to a size with a report."""
    sizes = []
    for _ in range(steps):
        sizes.append(adaptive.micro_batch)
        adaptive.after_step(respond(adaptive.micro_batch))
    return sizes


def saturating(overhead: float) -> Callable[[int], float]:
    """Share of the attainable throughput where a micro-batch costs so many sequences' time."""
    return lambda size: 1.0 / (1.0 + overhead / size)


def test_a_known_utilisation_stops_growth_at_sixty_per_cent() -> None:
    # 1 / (1 + 2 / m): 33 %, 50 %, 67 % of the attainable at 1, 2 and 4
    share = saturating(2.0)
    adaptive = AdaptiveMicroBatch(8)
    sizes = settle(adaptive, lambda m: StepReport(utilisation=share(m)))
    assert sizes == [1] * 5 + [2] * 5 + [4] * 50


def test_the_fitted_saturation_stops_growth_without_a_known_peak() -> None:
    # 1 / (1 + 0.4 / m): 71 %, 83 %, 91 % at 1, 2 and 4; 90 % counts as saturated
    share = saturating(0.4)
    adaptive = AdaptiveMicroBatch(8)
    sizes = settle(adaptive, lambda m: StepReport(seconds=8 / share(m)))
    assert sizes == [1] * 5 + [2] * 5 + [4] * 50
    assert adaptive.settled
    assert adaptive.saturation.utilisation(4) == pytest.approx(1 / 1.1)


def test_memory_ends_growth_before_saturation_does() -> None:
    def respond(size: int) -> StepReport:
        return StepReport(seconds=8 * (1 + 4 / size), out_of_memory=size > 2)

    adaptive = AdaptiveMicroBatch(8)
    sizes = settle(adaptive, respond)
    assert sizes == [1] * 5 + [2] * 5 + [4] + [2] * 49
    assert adaptive.settled


def test_a_size_whose_sequences_are_slower_is_given_up() -> None:
    adaptive = AdaptiveMicroBatch(8)
    sizes = settle(adaptive, lambda m: StepReport(utilisation=0.1, seconds=9.0 if m == 4 else 8.0))
    assert sizes == [1] * 5 + [2] * 5 + [4] * 5 + [2] * 45


def test_the_fit_finds_floor_and_overhead_of_exact_times() -> None:
    # a sequence takes 3 + 2 / m seconds
    fit = Saturation()
    for size in (1, 2, 4):
        fit.add(size, 8 * (3 + 2 / size), sequences=8)
    assert fit.floor == pytest.approx(3.0)
    assert fit.utilisation(2) == pytest.approx(0.75)


def test_one_size_alone_says_nothing_about_saturation() -> None:
    fit = Saturation()
    fit.add(2, 8.0, 8)
    assert fit.utilisation(2) is None


def test_times_that_fall_faster_than_the_law_tell_nothing() -> None:
    fit = Saturation()
    fit.add(1, 9.0, 1)
    fit.add(2, 2.0, 1)  # the line through both meets an endless micro-batch below zero
    assert fit.utilisation(2) is None
