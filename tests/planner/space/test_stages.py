"""Numbers of pipeline stages that a cluster offers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.space.axes import stage_counts


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 130), st.sampled_from([1, 4, 8]), st.integers(1, 600), st.integers(1, 600))
def test_a_larger_cluster_offers_every_number_of_stages_of_a_smaller_one(
    layers: int, per_node: int, nodes: int, more: int
) -> None:
    few = set(stage_counts(layers, per_node, None, nodes))
    assert few <= set(stage_counts(layers, per_node, None, nodes + more))


def test_three_stages_fill_24_nodes_of_a_larger_cluster() -> None:
    assert 3 in stage_counts(32, 8, None, 32)
    assert 3 in stage_counts(32, 8, 24, 32)


def test_stages_that_no_number_of_whole_nodes_holds_are_left_out() -> None:
    assert stage_counts(32, 8, None, 1) == [1, 2, 4, 8]


def test_pinned_nodes_offer_the_divisors_of_their_gpus() -> None:
    assert 17 in stage_counts(80, 8, 17, 17)
    assert 17 not in stage_counts(80, 8, None, 17)


def test_counts_with_the_same_longest_stage_as_a_smaller_one_are_left_out_beyond_sixteen() -> None:
    # ceil(80 / pp): 5 at 16, 4 at 20, 3 at 27, 2 at 40; 32 and 64 are powers of two
    assert [p for p in stage_counts(80, 8, None, 4096) if p > 16] == [20, 27, 32, 40, 64, 80]
