"""Coefficients of the step-time model: what a data sheet does not say, measured or fitted.

Each is physical (an efficiency, a latency, a host time per operation) and keyed by the GPU type,
the kind of link or network, or the training software: never by a model, a source or a row.
"""

import json
from functools import cache, lru_cache
from importlib.resources import files

from pydantic import Field

from cost_model.calibration.same import Same
from cost_model.plans import Software
from cost_model.specs.cluster import Gpu
from cost_model.specs.frozen import Frozen


class GpuCoefficients(Frozen):
    """How far one GPU type gets towards its data sheet."""

    gemm_efficiency: float = Field(gt=0, le=1)
    """Share of the peak that a large matrix product sustains: clocks under load, issue limits."""
    gemm_issue_efficiency: float = Field(default=0.5, gt=0)
    """Share of the peak at which a tile is computed before power holds the clock down; no less
    than gemm_efficiency has an effect."""
    gemm_k_half: float = Field(ge=0)
    """Depth, in elements, that a tile loses to filling and draining its pipeline."""
    gemm_overhead_us: float = Field(ge=0)
    """Device time of an empty product: start of the grid, last wave."""
    memory_efficiency: float = Field(gt=0, le=1)
    """Share of the memory bandwidth that a streaming kernel reaches."""
    kernel_overhead_us: float = Field(ge=0)
    """Device time of an empty memory-bound kernel."""
    flash1_efficiency: float = Field(gt=0, le=1.5)
    """Share of the peak in FlashAttention-1's forward pass, long sequence, head of 128."""
    flash2_efficiency: float = Field(gt=0, le=1.5)
    """The same for FlashAttention-2, or the best kernel that PyTorch ships for the GPU."""
    vendor_flash_efficiency: float = Field(gt=0, le=1.5)
    """The same for the vendor's own kernel (cuDNN), which Megatron takes. On Hopper it uses what
    FlashAttention-2 leaves idle; elsewhere they are equal."""
    flash_backward_ratio: float = Field(gt=0, le=1.5)
    """Backward rate of a flash kernel over its forward rate; it does 2.5 times the work."""
    comm_slowdown: float = Field(ge=0, le=1)
    """How much longer compute takes while a collective runs beside it at the rate of the fast link:
    multiprocessors and memory taken."""
    fp32_efficiency: float = Field(default=0.93, gt=0)
    """Share of the fp32 peak that a large product sustains on the vector units, which unlike
    matrix units are easy to feed."""
    update_slowdown: float = Field(default=1.0, gt=0)
    """Time of the optimizer's update over that of its bytes at the streaming rate."""


class LinkCoefficients(Frozen):
    """How far NCCL gets towards the rate of a link."""

    efficiency: float = Field(gt=0, le=1)
    """Share of the data-sheet rate that a large ring collective reaches."""
    base_us: float = Field(ge=0)
    """Time of one empty collective beside its hops: launch, synchronisation of the ranks."""
    hop_us: float = Field(ge=0)
    """Added per step of the ring or level of the tree, beside the link's own latency."""
    port_gb_per_s: float | None = Field(default=None, gt=0)
    """What one port carries at most, however fast it is: over TCP, what the host's threads copy."""
    group_gb_per_s: float | None = Field(default=None, gt=0)
    """What one group's ranks of a node send at most, however many ports they have: where adapters
    do not reach into the GPU's memory, what the group's proxy threads copy through the host's."""


class SoftwareCoefficients(Frozen):
    """What one training software costs beside its kernels."""

    host_us: float = Field(ge=0)
    """Host time per operator of the forward pass: Python, dispatch, launch."""
    host_backward_ratio: float = Field(ge=0)
    """Host time per operator of the backward pass over that of the forward pass."""
    comm_host_us: float = Field(ge=0)
    """Host time per collective of the forward or backward pass."""
    zero3_host_us: float = Field(ge=0)
    """Host time per layer and pass of gathering and releasing sharded parameters."""
    micro_batch_ms: float = Field(ge=0)
    """Host time per micro-batch: data loading, loss, schedule."""
    step_ms: float = Field(ge=0)
    """Fixed time per optimizer step: scaler, norm, logging, synchronisation."""
    hand_over_beside: float = Field(default=0.0, ge=0, le=1)
    """Share of a stage's compute beside which it hands over other micro-batches; 0 where a stage
    waits for each transfer."""
    dp_overlap: float = Field(ge=0, le=1)
    """Share of the backward pass behind which gradient traffic can hide when it may overlap."""
    zero_traffic_ratio: float = Field(default=1.0, gt=0)
    """Time of ZeRO's gathers and reductions over that of one flat buffer of the same bytes: copies
    into buckets and out of them, many small parameters."""
    tp_traffic_ratio: float = Field(default=1.0, gt=0)
    """Time of a layer's tensor-parallel collectives over that of the bare collective: tensors made
    contiguous before, joined and cast behind."""
    zero_pieces_per_layer: float = Field(default=0.0, ge=0)
    """Tensors of a layer that ZeRO 1 and 2 gather and reduce one by one; 0 where buckets or flat
    buffers travel. Over many replicas each waits for a ring of them."""
    straggle: float = Field(ge=0)
    """Growth of the step with scale, per doubling of the nodes that must wait for each other."""


class HostCoefficients(Frozen):
    """How far a host gets with what is offloaded to it."""

    memory_efficiency: float = Field(default=0.45, gt=0)
    """Share of the sockets' memory bandwidth that the CPU's Adam reaches: 0.25 s for a billion
    parameters, 28 bytes each, on two sockets of 128 GB/s (ZeRO-Offload, arXiv 2101.06840,
    table 4)."""
    core_gb_per_s: float = Field(default=8.0, gt=0)
    """What one core streams through."""
    pcie_efficiency: float = Field(default=0.8, gt=0)
    """Share of the slot's rate that large pinned copies reach."""
    pageable_gb_per_s: float = Field(default=1.5, gt=0)
    """Copies to and from memory that is not pinned, allocated anew each time: one thread stages
    them and touches every page."""


class Spread(Frozen):
    """Log-normal standard deviation of measured over predicted step time."""

    known: float = Field(gt=0)
    """GPU type and software both fitted."""
    unknown_gpu: float = Field(gt=0)
    """The GPU's coefficients are those of its architecture."""
    small: float = Field(gt=0)
    """Added in quadrature where the host, not the GPU, sets the pace."""
    transfers: float = Field(default=0.0, ge=0)
    """Added in quadrature by the share of the step in which the GPU waits for data: links differ
    more from machine to machine than GPUs do."""


class Coefficients(Frozen):
    """The whole set for step time."""

    gpus: dict[str, GpuCoefficients]
    architectures: dict[str, GpuCoefficients]
    """Defaults for a GPU type that was never measured."""
    links: dict[str, LinkCoefficients]
    networks: dict[str, LinkCoefficients]
    software: dict[str, SoftwareCoefficients]
    host: HostCoefficients = HostCoefficients()
    spread: dict[str, Spread]
    """By software and GPU architecture ('fsdp/hopper'), by software, 'default' for the rest."""
    provenance: dict[str, str] = Field(default_factory=dict)
    """Where each group of figures comes from."""

    @classmethod
    def default(cls) -> "Coefficients":
        """The shipped set."""
        return _shipped()

    def gpu(self, gpu: Gpu) -> GpuCoefficients:
        """Those of the GPU type, or of its architecture."""
        return self.gpus.get(gpu.name) or self.architectures[gpu.generation]

    def knows(self, gpu: Gpu) -> bool:
        """Whether the GPU type itself was fitted."""
        return gpu.name in self.gpus

    def link(self, kind: str, gpu: Gpu) -> LinkCoefficients:
        """Those of a kind of link inside a node; some GPUs have no peer copies over PCIe."""
        return self.links.get(f"{kind}/{gpu.name}") or self.links[kind]

    def network(self, kind: str) -> LinkCoefficients:
        """Those of a kind of network between nodes."""
        return self.networks[kind]

    def spread_of(self, software: Software, gpu: Gpu) -> Spread:
        """How far runs of that software on such GPUs lie from the prediction."""
        name = software.name.lower()
        return (
            self.spread.get(f"{name}/{gpu.generation}")
            or self.spread.get(name)
            or self.spread["default"]
        )

    def of_stack(self, stack: str | None) -> "Coefficients":
        """The set for a framework that has host times of its own, whatever software it resembles
        in what it holds and sends; else this set."""
        return self if stack is None else _of_stack(Same(self), stack)

    def of_software(self, software: Software) -> SoftwareCoefficients:
        """Those of one training software."""
        return self.software[software.name.lower()]


@lru_cache(maxsize=16)
def _of_stack(same: Same[Coefficients], stack: str) -> Coefficients:
    known = same.known
    own = known.software.get(stack)
    if own is None:
        return known
    return known.model_copy(update={"software": dict.fromkeys(known.software, own)})


@cache
def _shipped() -> Coefficients:
    text = files(__package__).joinpath("time.json").read_text("utf-8")
    return Coefficients.model_validate(json.loads(text))
