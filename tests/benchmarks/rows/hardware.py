"""The cluster of a row, from the catalogue and what the row says of its network."""

import re
from functools import cache
from typing import Literal

from cost_model import catalogue
from cost_model.catalogue.hardware import network as catalogue_network
from cost_model.specs.cluster import ClusterSpec, Network
from tests.benchmarks.rows.assumptions import Ledger, Skip
from tests.benchmarks.rows.raw import RawRow

# Name of the GPU (first match) and its memory in GB -> the machine it is usually sold in.
_MACHINES: tuple[tuple[str, dict[int, str]], ...] = (
    (r"grand teton|hbm2e 96", {96: "dgx-h100"}),
    (r"gh200", {96: "gh200-quad"}),
    (r"gb200", {192: "gb200-nvl72"}),
    (r"b200", {192: "dgx-b200"}),
    (r"h200", {141: "dgx-h200"}),
    (r"\bh20\b", {96: "h800-sxm"}),
    (r"h100.*nvl\b", {94: "h100-pcie"}),
    (r"h100.*pcie", {80: "h100-pcie"}),
    (r"h100", {80: "dgx-h100"}),
    (r"h800", {80: "h800-sxm"}),
    (r"a800", {80: "a800-sxm"}),
    (r"a100.*pcie", {80: "a100-80g-pcie", 40: "a100-40g-pcie"}),
    (r"a100", {80: "dgx-a100-80g", 40: "dgx-a100-40g"}),
    (r"v100.*sxm3|dgx-2", {32: "dgx-2"}),
    (r"v100.*pci", {32: "a6000-box", 16: "a6000-box"}),
    (r"v100", {32: "p3dn", 16: "p3.16xlarge"}),
    (r"a10g?\b", {24: "a10g-box"}),
    (r"l40s", {48: "l40s-box"}),
    (r"\bl4\b", {24: "l4-box"}),
    (r"\bt4\b", {16: "t4-box"}),
    (r"4090", {24: "4090-box"}),
    (r"3090", {24: "3090-box"}),
    (r"5090", {32: "5090-box"}),
    (r"a6000", {48: "a6000-box"}),
    (r"mi300", {192: "mi300x-box"}),
    (r"mi250", {64: "mi250-box"}),
)
_GPU_OVERRIDES = (
    (r"hbm2e 96|h100.*96", "h100-96g-500w"),
    (r"\bh20\b", "h20"),
    (r"h100.*nvl\b", "h100-nvl"),
    (r"v100.*pci.* 32", "v100-32g-pcie"),
    (r"v100.*pci", "v100-16g-pcie"),
    (r"\ba10\b", "a10"),
    (r"mi250x", "mi250x"),
)
"""GPUs in the machine of a sister: the text is the name, a space and the memory in GB."""

_WRITTEN_LINKS = (
    (r"jean ?zay", "v100-quad"),
    (r"p4de", "p4de"),
    (r"p4d", "p4d"),
    (r"p3dn", "p3dn"),
    (r"p3\.16xlarge|p3\.2xlarge", "p3.16xlarge"),
    (r"g4dn", "t4-box"),
    (r"dgx-?2\b", "dgx-2"),
    (r"dgx-?1\b", "dgx-1"),
)
"""Interconnect texts that name a machine outright."""

_NETWORKS = (
    (r"800 ?gbit/s infiniband", "ib-hdr-4"),
    (r"1600 ?gbps roce", "roce-200-8"),
    (r"slingshot", "slingshot-4"),
    (r"omni-?path", "omnipath-4"),
    (r"8x hdr|hdr ib", "ib-hdr-8"),
    (r"ndr", "ib-ndr-8"),
    (r"400 ?gb/s (rdma|per gpu)|cx-7 400", "roce-400-8"),
    (r"\bg5\b", "efa-100"),
)


@cache
def _machine(name: str, nodes: int) -> ClusterSpec:
    return catalogue.cluster(name, nodes)


def _machine_name(gpu: str, memory: float | None, written: str, ledger: Ledger) -> str:
    text = f"{gpu} {written}".lower()
    by_memory = next((m for pattern, m in _MACHINES if re.search(pattern, gpu.lower())), None)
    if by_memory is None:
        if _chip(gpu) is None:
            raise Skip("GPU not in the catalogue")
        ledger.assume("gpu_in_a_common_server")
        return _COMMON_SERVER
    for pattern, name in _WRITTEN_LINKS:
        if re.search(pattern, text) and name not in ("", None):
            machine = _machine(name, 1)
            if memory is None or abs(machine.node.gpu.memory_gib - memory) < 0.12 * memory:
                return name
    if memory is None:
        ledger.assume("gpu_memory_from_name")
        memory = float(printed_gb(gpu) or max(by_memory))
    nearest = min(by_memory, key=lambda gb: abs(gb - memory))
    return by_memory[nearest]


def printed_gb(gpu: str) -> int | None:
    """The memory that a GPU's name carries, GB: `A100-SXM4-40GB`, `A100 80G`."""
    found = re.search(r"(?<![a-z0-9])(\d+) ?gb?\b", gpu.lower())
    return int(found.group(1)) if found else None


AMPLE_HOST_GIB = 8192.0
"""More than any run needs."""

_COMMON_SERVER = "a6000-box"
"""Eight slots of PCIe 4.0: where GPUs that no machine of the catalogue has are found."""


@cache
def _chip(text: str) -> str | None:
    """The catalogue's GPU that a text names, by the words of its name; the longest wins."""
    words = text.lower().replace("_", "-").replace(" ", "-")
    found = []
    for name in catalogue.gpu_names():
        spelling = re.sub(r"(?<=\d)(?=ti)", "-?", name.replace("-", "-?"))
        if name != "cpu" and re.search(rf"(?<![a-z0-9]){spelling}(?![0-9])", words):
            found.append(name)
    return max(found, key=len, default=None)


def _network(written: str, ledger: Ledger, default: Network) -> Network:
    text = written.lower()
    shaped = re.search(r"delay ([\d.]+) ?ms\s+bandwidth ([\d.]+) ?gbps", text)
    if shaped:
        return Network(
            kind="ethernet",
            gbps_per_port=float(shaped.group(2)),
            ports_per_node=1,
            latency_us=1000 * float(shaped.group(1)),
        )
    if re.search(r"p3\.2xlarge", text):
        return Network(kind="ethernet", gbps_per_port=10, ports_per_node=1, latency_us=100)
    for pattern, name in _NETWORKS:
        if re.search(pattern, text):
            return catalogue_network(name)
    told = _told_network(text, default)
    if told is not None:
        return told
    ledger.assume("network_of_gpu")
    return default


_KINDS: tuple[tuple[str, Literal["infiniband", "roce", "efa", "omnipath", "ethernet"]], ...] = (
    (r"infiniband|\bib\b", "infiniband"),
    (r"roce|rdma over", "roce"),
    (r"\befa\b", "efa"),
    (r"ethernet|gbe\b|\btcp\b", "ethernet"),
)
_LATENCIES_US = {"infiniband": 5.0, "roce": 8.0, "efa": 20.0, "omnipath": 5.0, "ethernet": 30.0}
"""Of one hop, as the catalogue has them by kind."""


def _told_network(text: str, default: Network) -> Network | None:
    """A network from a text that names its kind and its rate; None where it lacks either.

    `4x 100 Gbps EFA`, `8 x 400G RoCEv2 (Spectrum-X)`, `100 Gbit/s Ethernet`; a rate without a count
    is the node's unless it is said to be each GPU's.
    """
    for part in re.split(r"[;,]|\+", text):
        kind = next((kind for pattern, kind in _KINDS if re.search(pattern, part)), None)
        rate = re.search(r"(?:(\d+) ?x ?)?(\d+(?:\.\d+)?) ?(?:g|gb|gbe|gbps|gbit/s|gb/s)\b", part)
        if kind is None or rate is None:
            continue
        ports = int(rate.group(1) or 1)
        if "per gpu" in part:
            ports = default.ports_per_node
        return Network(
            kind=kind,
            gbps_per_port=float(rate.group(2)),
            ports_per_node=ports,
            latency_us=_LATENCIES_US[kind],
        )
    return None


def cluster_of(raw: RawRow, gpus: int, ledger: Ledger) -> ClusterSpec:
    """The cluster on which a row ran, with exactly the GPUs that it used.

    gpus: ranks of the run. A job on part of a node is a cluster of one smaller node.
    """
    gpu = raw.text("gpu")
    if not gpu:
        raise Skip("GPU not stated")
    if re.search(r"\d+x.*\+", gpu):
        raise Skip("heterogeneous GPUs")
    written = raw.text("interconnect")
    if gpu.endswith("?") and not written and (raw.integer("nodes") or 1) > 1:
        raise Skip("neither GPU nor network stated")
    name = _machine_name(gpu, raw.number("gpu_mem_gb"), written, ledger)
    base = _machine(name, 1)
    per_node = raw.integer("gpus_per_node")
    nodes = raw.integer("nodes")
    if per_node is None:
        if nodes is not None and gpus % nodes == 0:
            per_node = gpus // nodes
        else:
            ledger.assume("gpus_per_node_8")
            per_node = base.node.gpus_per_node
    per_node = min(per_node, gpus)
    if gpus % per_node:
        raise Skip("ranks do not fill the nodes")
    ledger.assume("ample_host_ram")
    node = base.node.model_copy(update={"gpus_per_node": per_node, "host_ram_gib": AMPLE_HOST_GIB})
    spelled = f"{gpu.lower()} {raw.integer('gpu_mem_gb') or printed_gb(gpu)}"
    special = next((c for pattern, c in _GPU_OVERRIDES if re.search(pattern, spelled)), None)
    if special is None and name == _COMMON_SERVER:
        special = _chip(gpu)
    if special is not None:
        node = node.model_copy(update={"gpu": catalogue.gpu(special)})
    return base.model_copy(
        update={
            "node": node,
            "nodes": gpus // per_node,
            "network": _network(written, ledger, base.network),
        }
    )
