"""Which of DeepSpeed's optimizers holds the states of a plan, and when it lets gradients go.

Read in DeepSpeed 0.19.8: engine.py `_do_optimizer_sanity_check`, zero/stage_1_and_2.py,
zero/stage3.py, bf16_optimizer.py, fp16/fused_optimizer.py. Other software is none of them.
"""

from dataclasses import dataclass

from cost_model.calibration.memory import MemoryCoefficients
from cost_model.memory.profile import by_software
from cost_model.plans import Bools, Offload, PlanTable, Software, any_of
from cost_model.specs import TrainingSpec

MEGATRON_BUCKET = 40_000_000
"""Least elements of a gradient bucket of Megatron's; a million a replica where that is more
(megatron/core/distributed/distributed_data_parallel.py)."""


@dataclass(frozen=True)
class Engines:
    """One of these is true where the software is DeepSpeed [rows]."""

    whole: Bools
    """Nothing sharded: the 16-bit optimizer around one flat fp32 copy."""
    flat: Bools
    """BF16_Optimizer: a flat gradient for good, in the type that gradients are added up in."""
    partitioned: Bools
    """ZeRO 1 and 2: buckets, a flat copy of the weights, this rank's part of the gradient."""
    gathered: Bools
    """ZeRO 3."""
    frees: Bools
    """The backward pass reduces each bucket and frees its gradients: ZeRO 2, and ZeRO 1 whose
    communication overlaps with the only micro-batch of a step (hooks reduce at its boundary)."""


def defers_reduction(table: PlanTable) -> Bools:
    """Whether FSDP shards only between steps: in a pipeline weights stay gathered and whole
    gradients are added up until the last micro-batch comes back (torch, pipelining/stage.py,
    backward_maybe_with_nosync)."""
    found: Bools = any_of(table.software, Software.FSDP) & (table.pp > 1)
    return found


def engines(coefficients: MemoryCoefficients, training: TrainingSpec, table: PlanTable) -> Engines:
    """The optimizer wrapper of every plan of a table."""
    zero = table.zero_stage
    deepspeed = by_software(coefficients, table.software, "zero_engine") > 0
    pipelined = table.pipelined
    bf16 = training.precision == "bf16" and training.fp32_master
    wide = bool(training.fp32_grad_accum)
    adds_up = (zero == 1) & wide & (table.offload_optimizer == int(Offload.NONE))
    flat = deepspeed & bf16 & (((zero == 0) & pipelined) | adds_up)
    partitioned = deepspeed & ~flat & ((zero == 1) | (zero == 2))
    overlaps = table.overlap_comm & ~pipelined & (table.grad_accum == 1)
    return Engines(
        whole=deepspeed & ~flat & (zero == 0),
        flat=flat,
        partitioned=partitioned,
        gathered=deepspeed & (zero == 3),
        frees=partitioned & ((zero == 2) | overlaps),
    )
