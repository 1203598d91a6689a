"""Time of one collective of n bytes over a group of ranks laid on a topology.

Ranks fill nodes in order. A group has `size` ranks, `stride` ranks apart, so that
`gpus_per_node // stride` of them share a node; the other ranks of the node belong to other groups
that run the same collective at the same time and share the node's network ports.
"""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.plans import Floats, Ints
from cost_model.specs.cluster import ClusterSpec

_MESH_LINKS = 6
"""Links of a GPU in a mesh without switch. A pair has one of them, a group of g at most g - 1 at
work (DGX-1's hybrid cube mesh: 20, 73 and 121 GB/s measured for 2, 4 and 8 of its V100)."""


@dataclass(frozen=True)
class Topology:
    """Rates and latencies of a cluster as NCCL reaches them."""

    gpus_per_node: int
    island: int
    """GPUs joined by the fast link; the node unless NVLink bridges join fewer."""
    island_bytes_per_s: float
    """Per GPU and direction within an island, all of its links busy."""
    peers: int
    """Ranks that a GPU's links lead to: 1 through a switch, which gives any pair the whole rate."""
    node_bytes_per_s: float
    """Per GPU and direction between islands of one node."""
    port_bytes_per_s: float
    """Per node and direction, all ports."""
    group_bytes_per_s: float
    """What one group moves between a node and others at most, however many ports it has."""
    island_hop_s: float
    network_hop_s: float
    island_base_s: float
    network_base_s: float

    @classmethod
    def of(cls, cluster: ClusterSpec, coefficients: Coefficients) -> "Topology":
        """The topology of a cluster under fitted link efficiencies."""
        node, net = cluster.node, cluster.network
        link = coefficients.link(node.link.kind, node.gpu)
        wire = coefficients.network(net.kind)
        port = net.gbps_per_port * 1e9 / 8 * wire.efficiency
        if wire.port_gb_per_s is not None:
            port = min(port, wire.port_gb_per_s * 1e9)
        most = wire.group_gb_per_s
        fast = node.link.bandwidth_gb_per_s * 1e9 * link.efficiency
        pcie = node.pcie_gb_per_s * 1e9 * coefficients.link("pcie", node.gpu).efficiency
        island = node.link.nvlink_group or node.gpus_per_node
        mesh = node.link.kind == "nvlink" and island > 2
        return cls(
            gpus_per_node=node.gpus_per_node,
            island=island,
            island_bytes_per_s=fast,
            peers=min(island - 1, _MESH_LINKS) if mesh else 1,
            node_bytes_per_s=fast if island >= node.gpus_per_node else min(fast, pcie),
            port_bytes_per_s=port * net.ports_per_node,
            group_bytes_per_s=np.inf if most is None else most * 1e9,
            island_hop_s=(node.link.latency_us + link.hop_us) * 1e-6,
            network_hop_s=(net.latency_us + wire.hop_us) * 1e-6,
            island_base_s=link.base_us * 1e-6,
            network_base_s=wire.base_us * 1e-6,
        )

    def members(self, size: Ints, stride: Ints) -> Ints:
        """Ranks of one group that share a node [plans]."""
        together: Ints = np.maximum(self.gpus_per_node // np.maximum(stride, 1), 1)
        return np.minimum(size, together)

    def local_rate(self, size: Ints, stride: Ints) -> Floats:
        """Bytes a second per rank inside the node [plans]."""
        within = size * stride <= self.island
        links = np.clip((size - 1) / self.peers, 1.0 / self.peers, 1.0) if self.peers > 1 else 1.0
        rate: Floats = np.where(within, self.island_bytes_per_s, self.node_bytes_per_s) * links
        return rate

    def rank_network_rate(self) -> float:
        """Bytes a second per rank to other nodes when every GPU of the node sends."""
        return min(self.port_bytes_per_s / self.gpus_per_node, self.group_bytes_per_s)

    def group_network_rate(self, members: Ints) -> Floats:
        """Bytes a second between a node's `members` of a group and other nodes, while the node's
        other ranks do the same in groups of their own [plans]."""
        ports = self.port_bytes_per_s / self.gpus_per_node * members
        rate: Floats = np.minimum(ports, self.group_bytes_per_s)
        return rate


@dataclass(frozen=True)
class Ring:
    """Groups of ranks laid on a topology, and how long NCCL's collectives take over them [groups].

    Between nodes the ring of a group crosses each node once per channel, so a group of k ranks a
    node uses the ports of its k GPUs.
    """

    whole_start: Floats
    """Seconds that an empty all-reduce takes."""
    start: Floats
    """Seconds that an empty all-gather or reduce-scatter takes."""
    per_byte: Floats
    """Seconds that a byte of an all-gather's whole takes; of an all-reduce's payload twice."""
    pace: Floats
    """Rate at which it runs over that of a group on the fast link alone, at most 1."""

    @classmethod
    def of(cls, topology: Topology, size: Ints, stride: Ints) -> "Ring":
        """Rings of `size` ranks, `stride` ranks apart.

        NCCL reduces over a ring where it is short and over a double binary tree where the group is
        long, so the hops are the fewer of both: Jeaugey, "Massively scale your deep learning
        training with NCCL 2.4", 2019. Gathers and scatters have only the ring, in which a piece
        passes every rank.
        """
        members = topology.members(size, stride)
        nodes = -(-size // members)
        many, far = size > 1, nodes > 1
        base = np.where(far, topology.network_base_s, topology.island_base_s) * many
        hop, remote_hop = topology.island_hop_s, topology.network_hop_s
        around = (size - nodes) * hop + (nodes - 1) * remote_hop
        local = np.minimum(members - 1, 2 * np.log2(members))
        remote = np.minimum(nodes - 1, 2 * np.log2(nodes))
        local_wire = np.where(members > 1, 1.0 / topology.local_rate(members, stride), 0.0)
        remote_wire = far / topology.group_network_rate(members)
        wire = np.maximum(local_wire, remote_wire)
        fastest = 1.0 / topology.island_bytes_per_s
        return cls(
            whole_start=base + 2.0 * (local * hop + remote * remote_hop),
            start=base + around,
            per_byte=wire * ((size - 1) / size),
            pace=fastest / np.maximum(wire, fastest),
        )

    def all_reduce(self, n_bytes: Floats) -> Floats:
        """Seconds of one all-reduce of `n_bytes` per rank [groups].

        Each rank sends and receives 2 (g - 1) / g of it: Thakur, Rabenseifner, Gropp 2005,
        section 4.4.
        """
        return self.whole_start + n_bytes * (2.0 * self.per_byte)

    def all_gather(self, n_bytes: Floats) -> Floats:
        """Seconds of one all-gather, or reduce-scatter, of `n_bytes` whole [groups].

        Each rank sends (g - 1) / g of the whole: Thakur et al. 2005, section 4.1.
        """
        return self.start + n_bytes * self.per_byte

    def take(self, rows: Ints) -> "Ring":
        """The groups of an index array."""
        columns = (self.whole_start, self.start, self.per_byte, self.pace)
        return Ring(*(c.take(rows) for c in columns))


def all_reduce_seconds(topology: Topology, n_bytes: Floats, size: Ints, stride: Ints) -> Floats:
    """Time of one all-reduce of `n_bytes` per rank [plans]."""
    return Ring.of(topology, size, stride).all_reduce(n_bytes)


def all_gather_seconds(topology: Topology, n_bytes: Floats, size: Ints, stride: Ints) -> Floats:
    """Time of one all-gather, or reduce-scatter, of `n_bytes` whole [plans]."""
    return Ring.of(topology, size, stride).all_gather(n_bytes)


def all_to_all_seconds(topology: Topology, n_bytes: Floats, size: Ints, stride: Ints) -> Floats:
    """Time of one all-to-all in which each rank holds `n_bytes` [plans].

    Each rank keeps 1 / g of its bytes; what goes to ranks of other nodes leaves through its share
    of the node's ports.
    """
    members = topology.members(size, stride)
    local = n_bytes * (members - 1) / size / topology.local_rate(members, stride)
    remote = n_bytes * members * ((size - members) / size) / topology.group_network_rate(members)
    wire: Floats = np.maximum(local, remote)
    return wire + Ring.of(topology, size, stride).start


def point_to_point_seconds(topology: Topology, n_bytes: Floats, distance: Ints) -> Floats:
    """Time of sending `n_bytes` to the rank `distance` further on, every rank sending [plans]."""
    remote = distance >= topology.gpus_per_node
    near = distance < topology.island
    pair = topology.island_bytes_per_s / topology.peers
    local = np.where(near, pair, topology.node_bytes_per_s)
    rate = np.where(remote, topology.rank_network_rate(), local)
    hop = np.where(
        remote,
        topology.network_hop_s + topology.network_base_s,
        topology.island_hop_s + topology.island_base_s,
    )
    return n_bytes / rate + hop
