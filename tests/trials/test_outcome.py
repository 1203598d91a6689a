"""Errors and exit codes become outcomes."""

from trials.outcome import ENDED_HERE, Outcome, first_cause, late_rank, of_error, of_exit_code

CUDA_OOM = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 1.25 GiB is free. Process 1 has 77.90 GiB memory in use."
)


def test_an_out_of_memory_error_tells_how_much_was_asked_and_free() -> None:
    outcome = of_error("OutOfMemoryError", CUDA_OOM, "backward", 3)
    assert outcome.kind == "out_of_gpu_memory"
    assert outcome.asked_bytes == int(2.5 * 2**30)
    assert outcome.free_bytes == int(1.25 * 2**30)
    assert (outcome.phase, outcome.rank) == ("backward", 3)


def test_signal_nine_is_exhausted_host_memory() -> None:
    assert of_exit_code(-9, 1, "").kind == "out_of_host_memory"
    assert of_exit_code(137, 1, "").kind == "out_of_host_memory"


def test_a_refusal_of_the_engine_keeps_its_message() -> None:
    outcome = of_error("AssertionError", "ZeRO-2 and ZeRO-3 are incompatible", "init", 0)
    assert outcome.kind == "refused"
    assert "incompatible" in outcome.message


def test_a_watchdog_names_the_rank_that_is_missing() -> None:
    message = "gloo: Rank 5 did not join the barrier: timed out"
    outcome = of_error("RuntimeError", message, "forward", 0)
    assert (outcome.kind, outcome.rank) == ("collective_timeout", 5)


def test_a_lost_peer_is_not_the_cause() -> None:
    lost = Outcome(kind="crashed", message="RuntimeError: Connection reset by peer", rank=0)
    cause = Outcome(kind="out_of_gpu_memory", message="CUDA out of memory", rank=1)
    assert first_cause([lost, cause]) is cause


def waited(rank: int) -> Outcome:
    return Outcome(kind="collective_timeout", message="gloo: timed out waiting", rank=rank)


def test_of_ranks_that_waited_the_one_that_did_not_is_late() -> None:
    lost = Outcome(kind="crashed", message="RuntimeError: Connection reset by peer", rank=2)
    found = {0: waited(0), 1: waited(1), 2: lost, 3: lost}
    assert late_rank(found, {0: 9, 1: 9, 2: 9, 3: 7}) == 3


def test_where_all_waited_the_one_that_is_behind_is_late() -> None:
    assert late_rank({0: waited(0), 1: waited(1)}, {0: 12, 1: 11}) == 1
    assert late_rank({0: waited(0), 1: waited(1)}, {0: 12, 1: 12}) is None


def test_a_monitored_barrier_names_the_late_rank_itself() -> None:
    told = Outcome(
        kind="collective_timeout", message="Rank 6 failed to pass monitoredBarrier in 1000 ms"
    )
    assert late_rank({0: told, 6: waited(6)}, {0: 3, 6: 5}) == 6


def test_a_rank_that_the_supervisor_ended_is_not_the_cause() -> None:
    ended = of_exit_code(ENDED_HERE, 1, "")
    assert first_cause([ended, waited(0)]).kind == "collective_timeout"
