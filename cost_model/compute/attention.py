"""Time of the attention core: scores, softmax, weighted sum; by kernel."""

import numpy as np

from cost_model.compute.gemm import gemm_seconds, stack
from cost_model.compute.rates import Rates
from cost_model.plans import Bools, Floats
from cost_model.specs.model import Attention
from cost_model.specs.training import TrainingSpec

_HEAD_HALF = 16.0
"""Head width at which FlashAttention-2 would run at half its rate: its softmax work per score does
not shrink with the head (arXiv 2307.08691, figures 4 to 6: 64 against 128). The first version is as
fast with 64 as with 128."""
_SEQUENCE_HALF = 100.0
"""Keys at which FlashAttention-2 runs at half its rate (the same figures, 512 to 16k)."""
_FIRST_SEQUENCE_HALF = 600.0
"""The same of the first version, whose blocks are laid over batch and heads alone (section 3.2)."""
_SCORE_PASSES: dict[str, tuple[float, float]] = {
    # score-sized reads and writes between the two products, forward and backward, at 2 bytes;
    # dropout's own are added below
    "eager": (17.0, 16.0),  # scale, mask, cast to fp32, softmax, cast back
    "encoder": (6.0, 5.0),  # scale, add the padding's mask, softmax in the training precision
    "fused_softmax": (3.3, 3.3),  # one kernel, held up by its exponentials
}
_DROPOUT_PASSES = (3.0, 2.6)  # read, write, one-byte mask; the forward one draws numbers


def attended(attention: Attention, seq_len: int) -> float:
    """Keys that a query attends to on average, by the mask and the window.

    Causal: half of the sequence. A window of w: w, less the start of the sequence.
    """
    keys = float(seq_len)
    if attention.window is not None and attention.window < seq_len:
        w = float(attention.window)
        return w - w * w / (2 * keys) if attention.causal else min(2 * w, keys)
    return keys / 2 if attention.causal else keys


def core_flops(attention: Attention, seq_len: int) -> float:
    """FLOPs of the core's forward pass per sequence, mask used: both products.

    2 s k (d_qk + d_v) per head for k attended keys.
    """
    widths = attention.head_dim + attention.value_head_dim
    return 2.0 * attention.heads * seq_len * attended(attention, seq_len) * widths


def flash_seconds(
    attention: Attention,
    training: TrainingSpec,
    rates: Rates,
    sequences: Floats,
    efficiency: Floats,
    first: bool = False,
) -> tuple[Floats, Floats]:
    """Forward and backward time of a fused attention kernel [shapes].

    efficiency: share of the peak of a long sequence's forward pass. sequences: share of the
    layer's heads times sequences that one rank computes. first: FlashAttention's first version,
    or a kernel of its kind. The backward pass does 2.5 times the
    forward's FLOPs (five products for two; arXiv 2307.08691, section 2.3).
    """
    width = (attention.head_dim + attention.value_head_dim) / 2
    width_loss = 1.0 if first else (width / (width + _HEAD_HALF)) / (128 / (128 + _HEAD_HALF))
    keys = attended(attention, training.seq_len)
    keys_loss = keys / (keys + (_FIRST_SEQUENCE_HALF if first else _SEQUENCE_HALF))
    rate = efficiency * (rates.peak_flops * width_loss * keys_loss)
    if training.dropout > 0:
        rate = rate / 1.15  # the random numbers of the mask are drawn twice, inside the kernel
    work = core_flops(attention, training.seq_len) * sequences
    launch = rates.gpu.kernel_overhead_us * 1e-6
    forward = work / rate + launch
    backward = 2.5 * work / (rate * rates.gpu.flash_backward_ratio) + 2 * launch
    return forward, backward


def scores_seconds(
    attention: Attention, training: TrainingSpec, rates: Rates, sequences: Floats
) -> tuple[Floats, Floats]:
    """Forward and backward time of attention that writes its scores [shapes].

    Two batched products over the whole square (a mask saves nothing here), and passes over the
    s x s scores of each head: arXiv 2205.05198, section 4.1, counts the tensors.
    """
    s = float(training.seq_len)
    heads = attention.heads * sequences
    width, value = float(attention.head_dim), float(attention.value_head_dim)
    square = np.full_like(heads, s)
    products = stack(
        [
            (square, square, np.full_like(heads, width), heads),
            (square, np.full_like(heads, value), square, heads),
            # backward: gradients of scores, values, queries, keys
            (square, square, np.full_like(heads, value), heads),
            (square, np.full_like(heads, value), square, heads),
            (square, np.full_like(heads, width), square, heads),
            (square, np.full_like(heads, width), square, heads),
        ],
        len(heads),
    )
    times = gemm_seconds(products, rates)
    fused = (training.attention == "fused_softmax") & fused_softmax_runs(heads, training.seq_len)
    kernels = ("fused_softmax", "eager" if attention.causal else "encoder")
    forward_passes = np.where(fused, *(_SCORE_PASSES[k][0] for k in kernels))
    backward_passes = np.where(fused, *(_SCORE_PASSES[k][1] for k in kernels))
    if training.dropout > 0:
        forward_passes = forward_passes + _DROPOUT_PASSES[0]
        backward_passes = backward_passes + _DROPOUT_PASSES[1]
    score_bytes = heads * s * s * rates.element_bytes
    forward = times[:2].sum(0) + rates.stream_seconds(1.0) * score_bytes * forward_passes
    backward = times[2:].sum(0) + rates.stream_seconds(1.0) * score_bytes * backward_passes
    return forward, backward


def fused_softmax_runs(heads: Floats, seq_len: int) -> Bools:
    """Whether Megatron's fused softmax takes the shape; else it falls back to PyTorch [shapes].

    heads: heads times sequences on the rank, which the kernel takes four at a time, over at most
    16,384 keys (Megatron-LM, megatron/core/fusions/fused_softmax.py, is_kernel_available).
    """
    runs: Bools = (np.mod(heads, 4) == 0) & (16 < seq_len <= 16_384)
    return runs


def core_seconds(
    attention: Attention,
    training: TrainingSpec,
    rates: Rates,
    sequences: Floats,
    vendor: Bools,
) -> tuple[Floats, Floats]:
    """Forward and backward time of the core under the training's kernel [shapes].

    vendor: where the vendor's kernel stands in for FlashAttention-2. `sdpa` takes
    FlashAttention-2 where the GPU runs it and the precision has 16 bits, else the memory-efficient
    kernel, whose rate is near FlashAttention-1's.
    """
    if training.attention in ("eager", "fused_softmax"):
        return scores_seconds(attention, training, rates, sequences)
    own = rates.gpu
    first = training.attention == "flash1" or not rates.flash2 or rates.element_bytes > 2
    if first:
        efficiency = np.full_like(sequences, own.flash1_efficiency)
    else:
        efficiency = np.where(vendor, own.vendor_flash_efficiency, own.flash2_efficiency)
    return flash_seconds(attention, training, rates, sequences, efficiency, first)
