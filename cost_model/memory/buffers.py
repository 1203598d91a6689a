"""Communication buffers and the weights that ZeRO-3 has gathered."""

from dataclasses import dataclass

import numpy as np

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.adapters import frozen_weight_bytes
from cost_model.memory.engines import MEGATRON_BUCKET, Engines, defers_reduction
from cost_model.memory.precision import element_bytes
from cost_model.memory.profile import by_software, gradient_column
from cost_model.memory.sub_groups import EXPERT_GROUP, SUB_GROUP
from cost_model.memory.sums import Plans, Sum
from cost_model.memory.update import update_bytes
from cost_model.plans import Floats, Offload, PlanTable, Software, any_of
from cost_model.specs import TrainingSpec


@dataclass(frozen=True)
class Buffers:
    """Buffers of each plan [rows], in bytes unless said. None where no row has any."""

    permanent: Floats
    backward: Floats
    """Only in the backward pass."""
    at_loss: Floats | None
    """Still there from an earlier micro-batch when the loss is computed."""
    reducing: Floats | None
    """Two buckets where a pipeline reduces whole gradients just before the step; else 0."""
    spare: Floats | None
    """For each element of the largest parameter: a gradient on its way to the host and back."""
    reaching: Floats | None
    """Bytes an element of the largest parameter's gradient, which ZeRO 1 and 2 keep whole where it
    reaches into this rank's part."""
    sent: Floats | None
    """Bytes a gradient element of the copy of a bucket that is on its way to the other ranks."""
    sent_elements: Floats
    """Elements of that copy, at most: of a bucket."""
    ranks: Floats
    """Over which ZeRO shards."""
    early: Floats | None
    """1 where most layers' activations are still there when the first bucket is reduced and what
    this rank keeps of gradients is made: on the rank whose part is the last layers'. A bucket that
    holds gradients of several ranks is flattened into a copy (stage_1_and_2.py allreduce_bucket).
    """
    norm: Floats | None
    """Bytes an element of the largest gradient in this rank's part while its norm is computed."""
    waiting: Floats | None
    """Bytes an element of the gradients that Megatron-FSDP's ZeRO 2 has not reduced yet."""
    waiting_elements: Floats
    """Elements of those, at most."""
    live: Floats | None
    """Parameters that ZeRO-3 lets live at once; 0 where it gathers nothing."""
    units: Floats | None
    """Gathered bytes per parameter of a unit, weights of two (FSDP's full sharding)."""
    unit_gradients: Floats
    """The same of their gradients before they are reduced."""
    whole: Floats | None
    """Gathered bytes per parameter of the stage."""
    secondary: Floats | None
    """Bytes of hpZ's second copy per parameter of the stage (arXiv 2306.10209)."""
    step_cap: Floats | None
    """Most bytes of optimizer transients: ZeRO-3 updates a sub-group at a time; else infinite."""
    expert_cap: Floats | None
    """The same of experts, whose optimizer groups DeepSpeed keeps small; else infinite."""
    loaded: Floats | None
    """Bytes a parameter on the GPU before it is sharded, where every rank loads the model whole: of
    what is frozen under a 4-bit base (in 16-bit equivalents), else of all, which DeepSpeed moves
    there unless zero.Init made it (engine.py `_configure_distributed_model`)."""
    loads_frozen: bool
    element: int


NORM_BYTES = 8.0
"""ZeRO 1 and 2 compute norms of gradients in double precision (stage_1_and_2.py,
get_grad_norm_direct)."""


def _some(values: Floats, neutral: float = 0.0) -> Floats | None:
    return values if (values != neutral).any() else None


def buffers(
    coefficients: MemoryCoefficients, training: TrainingSpec, table: PlanTable, engine: Engines
) -> Buffers:
    """The buffers of every plan of a table.

    Contiguous gradient buckets of ZeRO 1 and 2: one of reduce_bucket_size elements, two with
    overlap_comm, from the first gradient on (stage_1_and_2.py setup_buckets, whole however small
    the model), until they are reduced: ZeRO 1 keeps them through the micro-batches of a step.
    ZeRO-3 holds one for good (stage3.py) and copies it to scatter it. Where ranks share sequences
    gradients travel in fp32 (seq_parallel_communication_data_type), through a copy in any stage,
    and ZeRO-3's bucket is fp32 itself.
    FSDP holds the unit in use and the one prefetched, and their unreduced gradients;
    SHARD_GRAD_OP (ZeRO 2), or any sharding in a pipeline, holds all weights; unsharded it holds
    them in 16 bits beside fp32, as autocast keeps its casts.
    """
    element = element_bytes(training)
    zero = table.zero_stage
    grad = gradient_column(coefficients, training, table.software)
    buckets = by_software(coefficients, table.software, "bucket_buffers") > 0
    buckets &= (zero != 1) | (by_software(coefficients, table.software, "flattens_gradients") == 0)
    has = buckets & ~engine.flat & ((zero == 1) | (zero == 2))
    number = np.where(table.overlap_comm & ~(engine.partitioned & table.pipelined), 2.0, 1.0)
    bucket = element * table.reduce_bucket.astype(np.float64)
    backward = np.where(has, number * bucket, 0.0)
    in_fp32 = (table.sp * table.cp > 1) & (engine.partitioned | engine.gathered)
    permanent = np.where(buckets & (zero == 3), np.where(in_fp32, 4 / element, 1.0) * bucket, 0.0)
    sent = np.where(engine.gathered, float(element), 0.0)
    sent = np.where(in_fp32, 4.0, sent)
    update = update_bytes(coefficients, training, table.software, engine, grad)
    kept = engine.partitioned & (zero == 1) & (table.grad_accum > 1)
    spare = engine.partitioned & (table.offload_optimizer != int(Offload.NONE))
    fsdp = any_of(table.software, Software.FSDP)
    sharded = table.zero_group > 1
    by_unit = fsdp & sharded & (zero == 3) & ~defers_reduction(table)
    trained = 1.0 if training.lora is None else 0.0  # frozen weights are kept as they are used
    casts = trained if element == 2 and training.fp32_master else 0.0
    deepspeed3 = ~fsdp & (zero == 3)
    quantized = training.lora is not None and training.lora.quantized_base
    weight = frozen_weight_bytes(training) if quantized else element
    live = 0 if quantized else table.max_live_params.astype(np.float64) + 1  # 4 bits: never sharded
    secondary = np.where((zero == 3) & (table.hpz > 1), element / table.hpz, 0.0)
    reaching = engine.partitioned & ~spare & (grad <= element)
    frees = engine.frees & (sent == 0) & (table.pp == 1)
    unreduced = by_software(coefficients, table.software, "unreduced_elements")
    waits = (unreduced > 0) & (zero == 2) & table.overlap_comm & (trained > 0)
    return Buffers(
        permanent=permanent,
        backward=backward,
        at_loss=_some(np.where(kept, backward, 0.0)),
        reducing=_some(
            np.where(has & engine.partitioned & table.pipelined & ~engine.frees, 2.0, 0.0) * bucket
        ),
        spare=_some(np.where(spare, float(element), 0.0)),
        reaching=_some(np.where(reaching, float(element), 0.0)),
        sent=_some(sent),
        sent_elements=bucket / element,
        ranks=table.zero_group.astype(np.float64),
        early=_some(np.where(frees, 1.0, 0.0)),
        norm=_some(np.where(engine.partitioned & ~spare, NORM_BYTES, 0.0)),
        waiting=_some(np.where(waits, grad, 0.0)),
        # those in the queue, those on their way and those of the bucket that is being filled
        waiting_elements=unreduced + 2 * np.maximum(MEGATRON_BUCKET, 1e6 * table.zero_group),
        live=_some(np.where(deepspeed3, live, 0.0)),
        units=_some(np.where(by_unit, 2.0 * weight, 0.0)),
        unit_gradients=np.where(by_unit, 2.0 * element * trained, 0.0),
        whole=_some(
            np.where(fsdp & sharded & (zero >= 2) & ~by_unit, weight, 0.0)
            + np.where(fsdp & ~(sharded & (zero >= 2)), element * casts, 0.0)
        ),
        secondary=_some(secondary),
        step_cap=_some(np.where(engine.gathered, SUB_GROUP * update, np.inf), np.inf),
        expert_cap=_some(
            np.where(
                engine.partitioned & (table.ep > 1),
                EXPERT_GROUP / np.maximum(table.zero_group / table.ep, 1.0) * update,
                np.inf,
            ),
            np.inf,
        ),
        loaded=_some(np.where(engine.gathered | quantized, float(element), 0.0))
        if training.whole_at_load
        else None,
        loads_frozen=quantized,
        element=element,
    )


def gathered_weights(plans: Plans, has: Buffers) -> tuple[Sum, Sum, Sum] | None:
    """Weights outside their shard, in bytes: at the loss, in a layer's backward pass, at its end.

    At the loss FSDP has gathered the head and the last layer, and there is no gradient yet; at the
    end the embedding's is there. DeepSpeed ZeRO-3 releases a gathered parameter only when more than
    max_live_params are alive, so that many stay, or the layer in use where it is larger. It
    releases a parameter by giving it another storage: slices of stacked experts that autograd has
    saved keep the old one, and with it the whole stack, until their backward pass.
    """
    if has.live is None and has.units is None and has.whole is None:
        return None
    whole = Sum()
    if has.live is not None:
        live = np.maximum(plans.sharding(has.live), plans.quantity("largest"))
        rate = np.where(has.live > 0, float(has.element), 0.0)
        live = np.minimum(plans.quantity("params"), live)
        whole += Sum(plans=plans.sharding(rate) * live)
    if has.whole is not None:
        whole += Sum({"params": has.whole})
    kept = whole
    if has.live is not None and plans.quantity("sliced").any():
        kept += Sum({"sliced": rate})
    if has.units is None:
        return kept, kept, whole
    half = plans.quantity("params") / 2
    layer = np.minimum(half, plans.quantity("layer"))
    largest = np.minimum(half, plans.quantity("largest"))
    weight = plans.sharding(has.units)
    both = weight + plans.sharding(has.unit_gradients)
    return (
        kept + Sum(plans=weight * (layer + largest) / 2),
        kept + Sum(plans=both * layer),
        whole + Sum(plans=both * largest),
    )
