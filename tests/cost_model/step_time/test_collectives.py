"""Collectives against hand-worked times."""

from dataclasses import replace

import numpy as np
import pytest

from cost_model import catalogue
from cost_model.calibration import Coefficients
from cost_model.collectives import (
    Ring,
    Topology,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    point_to_point_seconds,
)

BYTES = np.array([1e9])


def ideal(name: str, nodes: int) -> Topology:
    """A cluster whose links reach their data sheet and cost no time to start."""
    cluster = catalogue.cluster(name, nodes)
    raw = Coefficients.default().model_dump()
    for group in ("links", "networks"):
        for kind in raw[group]:
            raw[group][kind] = {"efficiency": 1.0, "base_us": 0.0, "hop_us": 0.0}
    node = cluster.node.model_copy(
        update={"link": cluster.node.link.model_copy(update={"latency_us": 0.0})}
    )
    network = cluster.network.model_copy(update={"latency_us": 0.0})
    cluster = cluster.model_copy(update={"node": node, "network": network})
    return Topology.of(cluster, Coefficients.model_validate(raw))


def ranks(n: int) -> np.ndarray:
    return np.array([n])


def test_a_ring_all_reduce_in_a_node_moves_twice_seven_eighths_of_the_payload() -> None:
    # 2 x 7/8 x 1 GB over 300 GB/s of NVLink 3
    seconds = all_reduce_seconds(ideal("dgx-a100-80g", 1), BYTES, ranks(8), ranks(1))
    assert seconds[0] == pytest.approx(2 * 7 / 8 / 300)


def test_an_all_gather_costs_half_of_an_all_reduce() -> None:
    topology = ideal("dgx-a100-80g", 4)
    for size, stride in ((8, 1), (32, 1), (4, 8)):
        whole = all_reduce_seconds(topology, BYTES, ranks(size), ranks(stride))
        half = all_gather_seconds(topology, BYTES, ranks(size), ranks(stride))
        assert whole[0] == pytest.approx(2 * half[0])


def test_a_ring_over_whole_nodes_is_bound_by_all_ports_of_a_node() -> None:
    # 8 ports of 25 GB/s: 2 x 31/32 x 1 GB over 200 GB/s, less than NVLink's 300
    seconds = all_reduce_seconds(ideal("dgx-a100-80g", 4), BYTES, ranks(32), ranks(1))
    assert seconds[0] == pytest.approx(2 * 31 / 32 / 200)


def test_a_strided_group_has_only_its_own_port() -> None:
    # one rank a node, the other seven groups use the other ports: 2 x 3/4 x 1 GB over 25 GB/s
    seconds = all_reduce_seconds(ideal("dgx-a100-80g", 4), BYTES, ranks(4), ranks(8))
    assert seconds[0] == pytest.approx(2 * 3 / 4 / 25)


def test_an_all_to_all_sends_what_leaves_the_node_through_the_port_of_the_gpu() -> None:
    # 16 ranks on 2 nodes: half of 1 GB leaves, through 25 GB/s
    seconds = all_to_all_seconds(ideal("dgx-a100-80g", 2), BYTES, ranks(16), ranks(1))
    assert seconds[0] == pytest.approx(0.5 / 25)


def test_a_group_of_one_costs_nothing() -> None:
    topology = Topology.of(catalogue.cluster("dgx-a100-80g", 2), Coefficients.default())
    for collective in (all_reduce_seconds, all_gather_seconds, all_to_all_seconds):
        assert collective(topology, BYTES, ranks(1), ranks(1))[0] == 0.0


def test_a_pair_in_a_mesh_without_switch_has_one_link() -> None:
    # DGX-1: 6 links of 25 GB/s; a pair uses one, four GPUs three, eight all
    topology = ideal("dgx-1", 1)
    rates = [all_gather_seconds(topology, BYTES, ranks(g), ranks(1))[0] for g in (2, 4, 8)]
    assert rates == pytest.approx([1 / 2 / 25, 3 / 4 / 75, 7 / 8 / 150])


def test_a_message_within_a_node_takes_nvlink_and_one_beyond_takes_the_port() -> None:
    topology = ideal("dgx-a100-80g", 2)
    near = point_to_point_seconds(topology, BYTES, ranks(4))
    far = point_to_point_seconds(topology, BYTES, ranks(8))
    assert (near[0], far[0]) == pytest.approx((1 / 300, 1 / 25))


def test_latency_grows_with_the_logarithm_of_a_long_ring() -> None:
    topology = Topology.of(catalogue.cluster("dgx-a100-80g", 256), Coefficients.default())
    small = np.array([8.0])
    seconds = [
        all_reduce_seconds(topology, small, ranks(8 * n), ranks(1))[0] for n in (4, 16, 64, 256)
    ]
    steps = np.diff(seconds)
    assert (steps > 0).all()
    assert steps[2] < 1.6 * steps[0]


def test_a_gather_passes_every_rank_where_a_reduction_may_take_a_tree() -> None:
    # 64 nodes of one GPU, 10 us a hop: 63 hops round the ring, twice 2 log2(64) of the tree
    topology = replace(ideal("dgx-a100-80g", 64), gpus_per_node=1, network_hop_s=1e-5)
    nothing = np.array([0.0])
    gather = all_gather_seconds(topology, nothing, ranks(64), ranks(1))
    reduce = all_reduce_seconds(topology, nothing, ranks(64), ranks(1))
    assert gather[0] == pytest.approx(630e-6)
    assert reduce[0] == pytest.approx(240e-6)


def test_all_gpus_of_sixteen_omni_path_nodes_reduce_as_fast_as_was_measured() -> None:
    # BigScience, experiments/bandwidth, n16_32gb_all_reduce_bench: 4 GB at a bus bandwidth of 54.9
    # Gbit/s (median of 320), where four ports carry 400; over four nodes it was 84.6
    topology = Topology.of(catalogue.cluster("v100-quad", 16), Coefficients.default())
    seconds = all_reduce_seconds(topology, np.array([4e9]), ranks(64), ranks(1))
    assert seconds[0] == pytest.approx(2 * 63 / 64 * 4e9 / (54.9e9 / 8), rel=0.25)


def test_groups_side_by_side_share_the_ports_where_one_alone_is_bound_by_its_threads() -> None:
    topology = replace(ideal("v100-quad", 4), group_bytes_per_s=10e9)  # ports of 50 GB/s a node
    one = all_gather_seconds(topology, BYTES, ranks(16), ranks(1))
    of_four = all_gather_seconds(topology, BYTES, ranks(4), ranks(4))
    assert one[0] == pytest.approx(15 / 16 / 10)
    assert of_four[0] == pytest.approx(3 / 4 / 10)
    roomy = replace(topology, port_bytes_per_s=20e9)
    assert all_gather_seconds(roomy, BYTES, ranks(4), ranks(4))[0] == pytest.approx(3 / 4 / 5)


def test_a_ring_through_the_ports_runs_at_their_share_of_the_fast_links_pace() -> None:
    # 8 x 25 GB/s a node against 300 GB/s a GPU; within the node it is the fast link's own
    topology = ideal("dgx-a100-80g", 4)
    within, beyond = (Ring.of(topology, ranks(n), ranks(1)).pace[0] for n in (8, 32))
    assert within == pytest.approx(1.0)
    assert beyond == pytest.approx(200 / 300)
