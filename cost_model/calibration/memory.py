"""What each training software holds in memory: physical figures, read from memory.json."""

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from cost_model.calibration.same import Same
from cost_model.plans import Software
from cost_model.specs.frozen import Frozen

GIB = 2**30


class GradientBytes(Frozen):
    """Bytes of one element of the accumulated gradient, by training precision."""

    bf16: float
    fp16: float
    fp32: float


class SoftwareMemory(Frozen):
    """What one training software keeps. docs/memory.md says where each figure comes from."""

    tp_shards_vocabulary: bool
    """The embedding and the head are sharded over tensor-parallel ranks."""
    vocabulary_parallel_loss: bool
    """The loss works on each rank's part of the vocabulary (Megatron's cross-entropy)."""
    holds_16bit_weights: bool
    """16-bit weights beside an fp32 master; FSDP casts its fp32 shard while gathering."""
    accumulates_whole: bool = False
    """Between optimizer steps gradients are not reduced: sharded data parallelism adds up whole
    ones (Lightning's no_backward_sync)."""
    zero_engine: bool
    """DeepSpeed's engine holds the states: its optimizer wrappers, buckets and flat copies."""
    gradient_bytes: GradientBytes
    permanent_gradients: bool
    """The gradient buffer lives from start to end, instead of growing during the backward pass."""
    unreduced_elements: float = 0
    """Whole gradients that ZeRO 2 lets wait for their reduction beside its shard, in elements, if
    it overlaps with the backward pass. Without overlap one bucket holds all of them from the first
    on, and the peak is above that of ZeRO 1 (Megatron-FSDP's optim_grads: megatron_fsdp.py
    suggested_RS_queue_capacity, param_and_grad_buffer.py fetch_bucket)."""
    master_bytes: float = 4
    """Bytes of the fp32 master copy of a 16-bit weight; 2 where the weight itself is its upper half
    (Apex' distributed Adam, store_param_remainders)."""
    replica_bucket_bytes: float = 0
    """Buckets through which data-parallel replicas reduce: as large as the gradient, for good."""
    gradient_copy_bytes: float
    """What the optimizer step takes, per parameter this rank updates, to bring a 16-bit gradient
    to fp32: 4 for the copy, 6 where a 16-bit one stays beside it."""
    optimizer_temporary_bytes: float
    """Temporaries of the optimizer step per updated parameter (4 for a foreach Adam)."""
    fused_optimizer: bool
    """The optimizer's update is one kernel without temporaries, where there is such a kernel."""
    keeps_normed: bool = True
    """What a norm gives is kept as the input of the product behind it, not computed again."""
    norm_saved_bytes: float
    """Saved per hidden element by one 16-bit norm: 2 fused; 6 where it upcasts to fp32 itself."""
    norm_finds_input: bool = False
    """A fused layer norm keeps what it gives, which a product keeps anyway, and finds its input
    from it (apex's memory-efficient norm, Megatron-DeepSpeed's default since September 2023)."""
    gated_saved: int
    """16-bit tensors of the intermediate width that a gated MLP saves: 4, or 3 fused."""
    repeats_kv: bool
    """Key and value are expanded to all query heads before attention."""
    widens_quantized: bool = False
    """Around a 4-bit base everything between its products is fp32: embeddings and norms are, and a
    4-bit product gives back the type that it got (PEFT's prepare_model_for_kbit_training).
    DeepSpeed's engine casts those to 16 bits again (engine.py _cast_module_mixed_precision)."""
    quantizes_head: bool = False
    """A 4-bit base takes in the output matrix (Lightning's BitsandbytesPrecision converts every
    linear module)."""
    stale_projections: int = 0
    """Parts of the fused query-key-value product that nothing needs, kept alive because another
    part is a view of the same storage."""
    eager_score_bytes: float
    """Saved per attention score by an eager softmax in 16 bits, without dropout: its result, and
    where it runs in fp32 that copy too (2 + 4)."""
    fused_score_bytes: float
    """The same for a fused scale-mask-softmax kernel: its result."""
    logit_kept_bytes: float
    """Bytes per logit that stay alive through the backward pass of the layers."""
    logit_peak_bytes: float
    """Bytes per logit at the worst moment of the loss."""
    logit_cached_bytes: float = 0
    """Freed before the peak of the loss, in a block that nothing else fits into: 16-bit logits."""
    logit_gather_bytes: float
    """Added to the peak for each logit that came from another tensor-parallel rank."""
    copies_inputs: bool = False
    """Under tensor parallelism each column-parallel matrix keeps an input of its own; queries,
    keys, values, gate and up are matrices apart."""
    regathers_inputs: bool
    """With sequence parallelism the gathered input of a matrix product is not kept but gathered
    again in the backward pass (arXiv 2205.05198, section 4.2.2)."""
    flat_copy_at_init: bool
    """Weights are copied into flat 16-bit buffers at start (not DeepSpeed's engine, whose copies
    are known)."""
    flattens_gradients: bool = False
    """ZeRO 1 has no buckets, but flattens all gradients in 16 bits to scatter them (DeepSpeed until
    0.5.1, zero/stage1.py get_flat_sub_partitions)."""
    bucket_buffers: bool
    """Reduce and all-gather buckets are buffers of their own, not views of the gradient."""
    caches_weight_gradients: bool
    """Fused accumulation into the main gradient leaves one 16-bit dummy gradient per weight shape
    (Transformer Engine's get_dummy_wgrad), kept for good."""
    workspace_mib: float
    """GEMM workspaces inside the allocator."""
    cache_growth: float
    """Reserved over all that the moments of a step take, as a share of what it allocates and frees:
    blocks cut for one size and not reused for another."""
    cache_floor_gib: float = 0
    """What the allocator holds beyond that whatever a step takes: segments that are partly used."""
    gathered_blocks: float = 0
    """Under sequence parallelism, tensors over the whole hidden size whose blocks stay, per layer
    and micro-batch in flight: the inputs gathered for two matrix products."""


class StackMemory(Frozen):
    """A framework that holds what another software's profile says, but for some figures."""

    like: str
    """Name of the software whose profile it starts from."""
    changes: dict[str, Any]
    """Figures of SoftwareMemory that are its own."""
    source: str
    """Where they come from."""


class HostMemory(Frozen):
    """What training takes of the host beside offloaded states."""

    process_gib: float
    """Resident size of one rank: interpreter, libraries, pinned staging buffers."""
    reserve_gib: float
    """The operating system and the file cache of one node."""


class Spread(Frozen):
    """How far measured memory lies from the prediction: standard deviations of the log ratio."""

    sigma: float
    host_sigma: float


class MemoryCoefficients(Frozen):
    """Everything that the memory model does not derive from the specs."""

    software: dict[str, SoftwareMemory]
    stacks: dict[str, StackMemory] = Field(default_factory=dict)
    """Frameworks of their own, by the names that TrainingSpec.stack may have."""
    fragmentation: float
    """Share of the allocated peak that the allocator holds beyond it even under pressure."""
    context_gib: float
    """CUDA context and loaded kernels, outside the allocator."""
    communicator_gib: float
    """Buffers of one NCCL communicator."""
    host: HostMemory
    spread: Spread

    def of(self, software: Software) -> SoftwareMemory:
        """The profile of one software."""
        return self.software[software.name.lower()]

    def in_stack(self, name: str | None) -> "MemoryCoefficients":
        """The same where a framework of its own trains: its profile stands for every software.

        A framework whose step time alone is known apart holds what its software does.
        """
        return self if name is None else _in_stack(Same(self), name)


@lru_cache(maxsize=16)
def _in_stack(same: Same[MemoryCoefficients], name: str) -> MemoryCoefficients:
    known = same.known
    if name not in known.stacks:
        return known
    stack = known.stacks[name]
    profile = SoftwareMemory.model_validate(known.software[stack.like].model_dump() | stack.changes)
    return known.model_copy(update={"software": dict.fromkeys(known.software, profile)})


@cache
def default_memory_coefficients() -> MemoryCoefficients:
    """The coefficients shipped with the package (reads memory.json once)."""
    text = Path(__file__).with_name("memory.json").read_text("utf-8")
    return MemoryCoefficients.model_validate(json.loads(text))
