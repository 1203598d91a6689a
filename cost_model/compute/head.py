"""Embedding and output head: they sit on the first and last stage and make them the slow ones."""

from dataclasses import dataclass

import numpy as np

from cost_model.compute.gemm import gemm_seconds, stack
from cost_model.compute.layer import rank_tokens
from cost_model.compute.rates import Rates
from cost_model.plans import Bools, Floats, PlanTable, Software, any_of
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec

_LOSS_BYTES = 38.0
"""Bytes per logit of an fp32 softmax cross-entropy in PyTorch, both passes: cast 2 + 4, softmax
4 + 4 + 4, gradient of the picked logits 4, of the softmax 4 + 4 + 4, cast back 4 + 2 less what a
fused kernel keeps in registers."""
_CHUNKED_LOSS_BYTES = 16.0
"""The same where the loss is computed chunk by chunk in one kernel."""


def parallel_loss(table: PlanTable) -> Bools:
    """Whether each tensor-parallel rank computes the loss of its own part of the vocabulary
    [plans]: Megatron's cross-entropy and PyTorch's loss_parallel do, others gather the logits."""
    gathers = (Software.DEEPSPEED, Software.DEEPSPEED_PIPELINE)
    return ~any_of(table.software, *gathers)


@dataclass(frozen=True)
class EdgeTimes:
    """Seconds per micro-batch of the first and the last stage's extra work [shapes]."""

    embedding: Floats
    head_forward: Floats
    head_backward: Floats


def edge_times(
    model: ModelSpec, training: TrainingSpec, table: PlanTable, rates: Rates
) -> EdgeTimes:
    """Embedding look-up with its gradient, and the head with its loss [plans].

    The look-up's gradient is a dense table: zeroed, then added to, 4 passes over it.
    """
    tokens = rank_tokens(table, training.seq_len)
    tp = table.tp.astype(float)
    one = np.ones(len(table))
    width = model.head_matmul_params / model.hidden / tp
    h = one * model.hidden
    forward, inputs, weights = gemm_seconds(
        stack(
            [(tokens, width, h, one), (tokens, h, width, one), (width, h, tokens, one)], len(table)
        ),
        rates,
    )
    logits = tokens * width
    loss = logits * np.where(parallel_loss(table), 1.0, tp)
    fused = table.chunked_loss | table.compile | training.fused_loss
    loss = loss * np.where(fused, _CHUNKED_LOSS_BYTES, _LOSS_BYTES)
    unit = 1.0 / rates.bytes_per_s
    frozen = training.lora is not None
    rows = model.vocab * model.hidden / tp * rates.element_bytes * (0.0 if frozen else 4.0)
    embedding = (rows + 6.0 * tokens * model.hidden * rates.element_bytes) * unit
    return EdgeTimes(
        embedding=embedding,
        head_forward=forward + 0.6 * loss * unit,
        head_backward=inputs + (0.0 if frozen else 1.0) * weights + 0.4 * loss * unit,
    )
