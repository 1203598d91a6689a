"""What the cost model says of a table of plans. Arrays are of shape [plans] unless said."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_model.plans import Bools, Floats, Ints

MEMORY_CATEGORIES = (
    "parameters",
    "gradients",
    "optimizer",
    "master",  # fp32 copy of the parameters this rank updates
    "buckets",  # reduce, all-gather and prefetch buffers
    "gathered",  # ZeRO-3 parameters alive outside their shard
    "activations",  # kept for the backward pass, over all micro-batches in flight
    "working",  # the largest layer's transients: recomputed activations, attention scores
    "logits",  # logits, their fp32 copy and gradient
    "step_transients",  # at the optimizer step: fp32 flat gradient, optimizer temporaries
    "fragmentation",  # held by the caching allocator beyond what is allocated, even under pressure
    "framework",  # CUDA context, NCCL communicators, cuBLAS workspace: outside the allocator
)

MEMORY_PHASES = ("init", "forward_backward", "step", "save")

STEP_PARTS = (
    "compute",  # GEMMs, attention, element-wise of forward and backward
    "recompute",
    "tp_comm",  # exposed tensor-parallel traffic
    "sp_comm",  # exposed Ulysses and context-parallel traffic
    "ep_comm",  # exposed expert all-to-all
    "pp_comm",
    "bubble",
    "dp_comm",  # exposed gradient reduction and ZeRO gathers
    "optimizer",
    "offload",  # exposed PCIe, host-memory, NVMe and CPU-Adam time
    "overhead",  # launches, data loading, per-step fixed costs
)

TRANSFERS = ("tp_comm", "sp_comm", "ep_comm", "pp_comm", "dp_comm", "offload")
"""The parts in which the GPU waits for data."""


@dataclass(frozen=True)
class MemoryPrediction:
    """GPU bytes of the worst rank, and host and NVMe bytes of a node."""

    allocated_bytes: Floats
    """Peak that the allocator hands out, over phases and stages (torch max_memory_allocated)."""
    reserved_bytes: Floats
    """Peak that the allocator holds from the driver (torch max_memory_reserved) where nothing
    presses it to give cached blocks back; what the driver reports is this and `framework`."""
    total_bytes: Floats
    """allocated, fragmentation that cannot be given back, and framework: what must fit."""
    peak_stage: Ints
    """Pipeline stage that holds the peak."""
    peak_phase: Ints
    """Index into MEMORY_PHASES."""
    categories: Mapping[str, Floats]
    """Bytes at the peak by category; they sum to total_bytes."""
    phases: Mapping[str, Floats]
    """Total bytes by phase, at its worst stage."""
    host_bytes: Floats
    """Peak host bytes of one node, over load, steady state and save."""
    nvme_bytes: Floats
    node_group: Ints | None = None
    """Group of nodes that the worst rank is on, -1 where all nodes count as equal; None where the
    cluster has no groups."""


@dataclass(frozen=True)
class Need:
    """Of a memory prediction what tells whether a plan fits; names and meanings are its own."""

    total_bytes: Floats
    host_bytes: Floats
    nvme_bytes: Floats
    node_group: Ints | None = None


@dataclass(frozen=True)
class StepPrediction:
    """Seconds of one optimizer step."""

    seconds: Floats
    parts: Mapping[str, Floats]
    """Exposed seconds by STEP_PARTS; they sum to seconds."""
    model_flops: Floats
    """Model FLOPs of one step over all GPUs, without recompute (arXiv 2205.05198, equation 7)."""
    mfu: Floats
    """Model FLOPs over the peak of the GPUs used, in the training precision."""
    hfu: Floats
    """The same with recompute."""
    traffic_bytes: Mapping[str, Floats]
    """Bytes each rank sends per step, by part that ends in _comm, and 'offload'."""
    node_group: Ints | None = None
    """Group of nodes that the others wait for, -1 where all nodes count as equal; None where the
    cluster has no groups."""


@dataclass(frozen=True)
class Prediction:
    """Both, with intervals: 90 % of measured runs fall between low and high."""

    memory: MemoryPrediction
    step: StepPrediction
    total_bytes_low: Floats
    total_bytes_high: Floats
    seconds_low: Floats
    seconds_high: Floats
    fits_probability: Floats
    """Probability that the worst rank's total stays within the GPU and the host's RAM suffices."""
    fits: Bools
    """fits_probability of at least one half."""
