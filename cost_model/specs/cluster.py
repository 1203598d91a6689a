"""What a cluster is made of: GPUs, nodes, links inside a node, the network between nodes."""

from typing import Literal

from pydantic import Field

from cost_model.specs.frozen import LEAST, MOST, MOST_COUNT, Frozen

Architecture = Literal[
    "volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna2", "cdna3", "cpu"
]


class Gpu(Frozen):
    """One accelerator, from its data sheet. Efficiencies live in the coefficients, not here."""

    name: str
    architecture: Architecture | None = None
    """Generation, for the coefficients of a GPU that was never measured; None infers it from
    which matrix formats the data sheet lists."""
    memory_gib: float = Field(ge=LEAST, le=MOST)
    """What the driver reports as total: less than the printed size (A100-80GB: 79.15)."""
    bf16_tflops: float | None = Field(ge=LEAST, le=MOST)
    """Dense tensor-core peak; None where the GPU has no bf16 matrix unit (V100, T4)."""
    fp16_tflops: float = Field(ge=LEAST, le=MOST)
    fp32_tflops: float = Field(ge=LEAST, le=MOST)
    """Peak of an fp32 GEMM without TF32."""
    tf32_tflops: float | None = Field(default=None, ge=LEAST, le=MOST)
    fp8_tflops: float | None = Field(default=None, ge=LEAST, le=MOST)
    memory_bandwidth_gb_per_s: float = Field(ge=LEAST, le=MOST)
    sms: int = Field(ge=1, le=MOST_COUNT)
    """Streaming multiprocessors: how many tiles run in one wave."""
    usd_per_hour: float | None = Field(default=None, ge=LEAST, le=MOST)
    source: str = ""

    def peak_flops(self, precision: Literal["bf16", "fp16", "fp32", "tf32", "fp8"]) -> float:
        """FLOP/s of a dense matrix product in a number format.

        fp32 means fp32: PyTorch leaves TF32 off for products unless told otherwise. A format
        without a unit of its own runs as the next wider one that has one: bf16 and TF32 as fp32,
        fp8 as bf16.
        """
        if precision == "fp8" and self.fp8_tflops is not None:
            return self.fp8_tflops * 1e12
        if precision == "tf32" and self.tf32_tflops is not None:
            return self.tf32_tflops * 1e12
        if precision == "fp8":
            precision = "bf16"
        if precision == "bf16":
            return (self.bf16_tflops or self.fp32_tflops) * 1e12
        if precision == "fp16":
            return self.fp16_tflops * 1e12
        return self.fp32_tflops * 1e12

    @property
    def generation(self) -> Architecture:
        """The architecture, or the oldest one whose matrix formats the data sheet lists."""
        if self.architecture is not None:
            return self.architecture
        if self.fp8_tflops is not None:
            return "hopper"
        return "ampere" if self.bf16_tflops is not None else "volta"


class Link(Frozen):
    """The link between the GPUs of one node, per GPU and direction."""

    kind: Literal["nvswitch", "nvlink", "pcie", "none", "memory"]
    bandwidth_gb_per_s: float = Field(ge=LEAST, le=MOST)
    """Data-sheet rate per GPU and direction (NVLink 3 on A100: 300)."""
    latency_us: float = Field(ge=0, le=MOST)
    nvlink_group: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    """GPUs joined by NVLink bridges where that is fewer than the node has; the rest is PCIe."""


class Network(Frozen):
    """The network between nodes."""

    kind: Literal["infiniband", "roce", "ethernet", "efa", "omnipath", "none"]
    gbps_per_port: float = Field(ge=LEAST, le=MOST)
    """Gbit/s of one port, one direction."""
    ports_per_node: int = Field(ge=1, le=MOST_COUNT)
    latency_us: float = Field(ge=0, le=MOST)

    @property
    def node_bytes_per_s(self) -> float:
        """Bytes a second through all ports of one node, one direction."""
        return self.gbps_per_port * self.ports_per_node * 1e9 / 8


class Nvme(Frozen):
    """Local flash of one node, all drives together."""

    capacity_gib: float = Field(ge=LEAST, le=MOST)
    read_gb_per_s: float = Field(ge=LEAST, le=MOST)
    write_gb_per_s: float = Field(ge=LEAST, le=MOST)


class Node(Frozen):
    """One machine."""

    gpu: Gpu
    gpus_per_node: int = Field(ge=1, le=MOST_COUNT)
    link: Link
    pcie_gb_per_s: float = Field(ge=LEAST, le=MOST)
    """Host to device, per GPU and direction."""
    host_ram_gib: float = Field(ge=LEAST, le=MOST)
    cpu_cores: int = Field(ge=1, le=MOST_COUNT)
    """Physical cores of all sockets."""
    sockets: int = Field(ge=1, le=MOST_COUNT)
    host_gb_per_s_per_socket: float = Field(ge=LEAST, le=MOST)
    """Memory bandwidth of one socket: channels x 25.6 GB/s for DDR4-3200."""
    nvme: Nvme | None = None


class ClusterSpec(Frozen):
    """Equal nodes on one network, or groups of different ones."""

    name: str
    node: Node
    nodes: int = Field(ge=1, le=MOST_COUNT)
    network: Network
    usd_per_gpu_hour: float | None = Field(default=None, ge=LEAST, le=MOST)
    groups: tuple["ClusterSpec", ...] = ()
    """Groups of nodes that differ, in the order in which the stages of a pipeline lie on them; the
    rest of the description is then what all of them reach. Empty where all nodes are equal."""

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return self.nodes * self.node.gpus_per_node
