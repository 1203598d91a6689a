"""Node groups with different GPUs: which a plan can use, and what several make together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from cost_model.specs import ClusterSpec, Gpu, Node

MOST_GROUPS = 4
"""Subsets are tried one by one: 15 of four groups."""


@dataclass(frozen=True)
class Options:
    """The clusters that a plan may run on."""

    clusters: tuple[ClusterSpec, ...]
    """Every group alone, then every union that software can drive as one, in each order in which
    the stages of a pipeline are laid on it; the order of the request first."""
    refused: tuple[str, ...]
    """Unions left out, with the reason."""


def options(groups: Sequence[ClusterSpec]) -> Options:
    """Every subset of the groups, as one cluster or refused with a reason."""
    clusters = list(groups)
    refused = []
    for size in range(2, len(groups) + 1):
        for chosen in combinations(groups, size):
            reason = _reason_against(chosen)
            if reason is None:
                clusters += [union(chosen), union(chosen[::-1])]
            else:
                refused.append(f"{_name(chosen)}: {reason}")
    return Options(tuple(clusters), tuple(refused))


def _name(groups: Iterable[ClusterSpec]) -> str:
    return " + ".join(f"{g.nodes} x {g.name}" for g in groups)


def _reason_against(groups: Sequence[ClusterSpec]) -> str | None:
    counts = sorted({g.node.gpus_per_node for g in groups})
    if len(counts) > 1:
        return (
            f"nodes of {' and '.join(map(str, counts))} GPUs in one job: the deepspeed launcher "
            "and the rank layouts want equal nodes"
        )
    if any(g.network.kind == "none" for g in groups):
        return "one of the groups has no network to other nodes"
    return None


def reordered(cluster: ClusterSpec, groups: Sequence[ClusterSpec]) -> bool:
    """Whether a union has the groups of a request in another order than that."""
    return cluster.groups != tuple(group for group in groups if group in cluster.groups)


def union(groups: Sequence[ClusterSpec]) -> ClusterSpec:
    """Several groups as one cluster at the pace of the slowest, and each in its order.

    Every collective waits for its slowest rank, and software gives every rank the same
    micro-batch: so the slowest GPU, link and network, and the smallest memories, govern a plan
    whose ranks mix groups. A pipeline whose stages lie on one group each is judged by `groups`.
    """
    nodes = sum(g.nodes for g in groups)
    prices = [g.usd_per_gpu_hour for g in groups]
    known = [p for p in prices if p is not None]
    weighted = sum((g.usd_per_gpu_hour or 0.0) * g.nodes for g in groups) / nodes
    return ClusterSpec(
        name=_name(groups),
        node=_slowest_node([g.node for g in groups]),
        nodes=nodes,
        network=min((g.network for g in groups), key=lambda n: n.node_bytes_per_s),
        usd_per_gpu_hour=weighted if len(known) == len(prices) else None,
        groups=tuple(groups),
    )


def _slowest_node(nodes: Sequence[Node]) -> Node:
    flash = [n.nvme for n in nodes if n.nvme is not None]
    return Node(
        gpu=_slowest_gpu([n.gpu for n in nodes]),
        gpus_per_node=nodes[0].gpus_per_node,
        link=min((n.link for n in nodes), key=lambda link: link.bandwidth_gb_per_s),
        pcie_gb_per_s=min(n.pcie_gb_per_s for n in nodes),
        host_ram_gib=min(n.host_ram_gib for n in nodes),
        cpu_cores=min(n.cpu_cores for n in nodes),
        sockets=min(n.sockets for n in nodes),
        host_gb_per_s_per_socket=min(n.host_gb_per_s_per_socket for n in nodes),
        nvme=min(flash, key=lambda f: f.capacity_gib) if len(flash) == len(nodes) else None,
    )


def _slowest_gpu(gpus: Sequence[Gpu]) -> Gpu:
    """The GPU with the lowest 16-bit peak, with the smallest memory and bandwidth of all."""
    slowest = min(gpus, key=lambda g: g.bf16_tflops or g.fp16_tflops)
    bf16 = [g.bf16_tflops for g in gpus]
    return slowest.model_copy(
        update={
            "memory_gib": min(g.memory_gib for g in gpus),
            "memory_bandwidth_gb_per_s": min(g.memory_bandwidth_gb_per_s for g in gpus),
            "bf16_tflops": None if None in bf16 else slowest.bf16_tflops,
        }
    )


def as_request(group: ClusterSpec) -> dict[str, Any]:
    """One group as the cluster part of a request has it."""
    node = group.node.model_dump(mode="json", exclude_none=True)
    return {
        "name": group.name,
        "nodes": group.nodes,
        **node,
        "network": group.network.model_dump(mode="json"),
        **({} if group.usd_per_gpu_hour is None else {"usd_per_gpu_hour": group.usd_per_gpu_hour}),
    }
