"""Compute time of one layer on one rank, by shape."""

from dataclasses import dataclass

import numpy as np

from cost_model.compute.attention import core_seconds, fused_softmax_runs
from cost_model.compute.gemm import Products, gemm_seconds, stack
from cost_model.compute.profile import Passes, passes
from cost_model.compute.rates import Rates
from cost_model.moe import expert_tokens, router_passes
from cost_model.plans import Bools, Floats, PlanTable, Software, any_of
from cost_model.specs.model import Attention, Layer, ModelSpec
from cost_model.specs.training import TrainingSpec

_LOOSE_SOFTMAX = 6.0
_Product = tuple[Floats, Floats, Floats, Floats]


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of one layer and one micro-batch on one rank [shapes]."""

    forward: Floats
    backward: Floats
    core_forward: Floats
    """Part of the forward pass that selective recompute repeats."""
    mlp_forward: Floats
    """Part of the forward pass that recompute of the feed-forward repeats."""
    again_forward: Floats
    """Part of the forward pass that full recompute repeats."""
    operators: Floats
    """Operators that the host issues in the forward pass."""


def rank_tokens(table: PlanTable, seq_len: int) -> Floats:
    """Tokens of one micro-batch that a rank's matrix products see [plans]."""
    return table.micro_batch * (seq_len / (table.sp * table.cp))


def attention_products(
    attention: Attention, hidden: int, tokens: Floats, tp: Floats
) -> list[_Product]:
    """Projections of one attention sub-layer as (m, n, k, batch) [shapes].

    Column-parallel in, row-parallel out (Megatron-LM, arXiv 1909.08053, section 3). The
    down-projections of latent attention are replicated (DeepSeek-V2, arXiv 2405.04434, 2.1).
    """
    h, one = np.full_like(tokens, hidden), np.ones_like(tokens)
    q = attention.heads * attention.head_dim / tp
    v = attention.heads * attention.value_head_dim / tp
    if attention.latent is None:
        kv = np.maximum(attention.kv_heads / tp, 1.0)
        width = q + kv * (attention.head_dim + attention.value_head_dim)
        return [(tokens, width, h, one), (tokens, h, v, one)]
    rank = attention.latent
    products: list[_Product] = [(tokens, h, v, one)]
    if rank.q_lora_rank is None:
        products.append((tokens, q, h, one))
    else:
        low = np.full_like(tokens, rank.q_lora_rank)
        products += [(tokens, low, h, one), (tokens, q, low, one)]
    low = np.full_like(tokens, rank.kv_lora_rank)
    up = attention.heads * (rank.nope_head_dim + attention.value_head_dim) / tp
    products += [(tokens, low + rank.rope_head_dim, h, one), (tokens, up, low, one)]
    return products


def mlp_products(
    hidden: int, intermediate: int, gated: bool, tokens: Floats, tp: Floats, batch: Floats
) -> list[_Product]:
    """Feed-forward products as (m, n, k, batch) [shapes]."""
    h, width = np.full_like(tokens, hidden), intermediate / tp
    return [(tokens, width * (2 if gated else 1), h, batch), (tokens, h, width, batch)]


def layer_times(
    model: ModelSpec, layer: Layer, training: TrainingSpec, table: PlanTable, rates: Rates
) -> LayerTimes:
    """Compute time of one layer [plans]; `table` is best one row per shape.

    A product [m, k] x [k, n] costs, in the backward pass, the gradient of its input
    [m, n] x [n, k] and of its weight [k, m] x [m, n]; a frozen weight has no gradient.
    """
    shapes, tp = len(table), table.tp.astype(float)
    tokens = rank_tokens(table, training.seq_len)
    one = np.ones(shapes)
    products: list[_Product] = []
    adapted = 0  # how many products carry low-rank adapters
    core_forward, core_backward = np.zeros(shapes), np.zeros(shapes)
    vendor = any_of(table.software, Software.MEGATRON)
    wide = np.zeros(shapes)  # query, key and value elements per token
    for attention in (layer.attention, layer.cross_attention):
        if attention is None:
            continue
        products += attention_products(attention, model.hidden, tokens, tp)
        share = table.micro_batch / (tp * table.sp * table.cp)
        forward, backward = core_seconds(attention, training, rates, share, vendor)
        core_forward, core_backward = core_forward + forward, core_backward + backward
        kv = np.maximum(attention.kv_heads / tp, 1.0)
        wide += attention.heads * attention.head_dim / tp + kv * attention.head_dim
        adapted = len(products)
    inner = np.zeros(shapes)  # activated elements
    before_mlp = len(products)
    if layer.mlp is not None:
        products += mlp_products(
            model.hidden, layer.mlp.intermediate, layer.mlp.gated, tokens, tp, one
        )
        inner += tokens * layer.mlp.intermediate / tp
    routed = np.zeros(shapes)
    if layer.moe is not None:
        moe = layer.moe
        each, local = expert_tokens(moe, table, tokens)
        routed = each * local
        products.append((tokens, one * moe.experts, one * model.hidden, one))
        products += mlp_products(model.hidden, moe.intermediate, moe.gated, each, tp, local)
        inner += routed * moe.intermediate / tp
        if moe.shared_intermediate:
            products += mlp_products(
                model.hidden, moe.shared_intermediate, moe.gated, tokens, tp, one
            )
            inner += tokens * moe.shared_intermediate / tp
    count = len(products)
    if training.lora is not None and training.lora.targets == "all_linear":
        adapted = count
    gradients = [(m, k, n, b) for m, n, k, b in products]
    weights = [] if training.lora else [(n, k, m, b) for m, n, k, b in products]
    stacked = stack(products + gradients + weights, shapes)
    times = gemm_seconds(stacked, rates, rates.linear_flops)
    if rates.cast_bytes:
        times += _cast_seconds(stacked, count, rates, vendor)

    p = passes(model, layer, training, table.software, table.compile)
    loose_forward, loose_backward = _loose_seconds(
        model, layer, table, rates, p, tokens, inner, wide * tokens, routed
    )
    small = np.maximum(p.operators - 2 * count, 4.0) * (rates.gpu.kernel_overhead_us * 1e-6)
    adapters = _adapter_seconds(training, products, adapted, rates)
    again = _mlp_again(times[before_mlp:count], layer.moe is not None, vendor)
    forward = times[:count].sum(0) + core_forward + loose_forward + small + adapters
    # PyTorch's own checkpoint stops once all that is saved is there: before the last product,
    # whose result nothing keeps, and compilers remove it. Megatron's and DeepSpeed's run whole.
    stops = (any_of(table.software, Software.FSDP) | table.compile) & (layer.moe is None)
    return LayerTimes(
        forward=forward,
        backward=times[count:].sum(0) + core_backward + loose_backward + 1.5 * small + 2 * adapters,
        core_forward=core_forward,
        mlp_forward=again + p.activation_forward * inner * rates.element_bytes / rates.bytes_per_s,
        again_forward=forward - np.where(stops, times[count - 1], 0.0),
        operators=p.operators
        + (12.0 if layer.moe is not None else 0.0)
        + _loose_softmax(layer, training, table),
    )


def _loose_softmax(layer: Layer, training: TrainingSpec, table: PlanTable) -> Floats:
    """Operators more that the host issues where Megatron's fused softmax does not take the shape
    [plans]: cast, scale, mask, softmax and cast back for one (fusions/fused_softmax.py,
    forward_torch_softmax)."""
    if training.attention != "fused_softmax" or layer.attention is None:
        return np.zeros(len(table))
    heads = layer.attention.heads * table.micro_batch / table.tp
    loose = ~(fused_softmax_runs(heads, training.seq_len) | table.compile)
    return np.where(loose, _LOOSE_SOFTMAX, 0.0)


def _cast_seconds(products: Products, count: int, rates: Rates, vendor: Bools) -> Floats:
    """Time of casting to fp8 what each product reads [products, shapes].

    products: `count` of the forward pass, the gradients of their inputs, those of their weights
    unless frozen. Weights are cast once for all micro-batches by Megatron, in every one by PyTorch,
    whose dynamic scaling reads everything twice where Transformer Engine scales in the kernel
    before. Both backward products read one cast of the output's gradient; that of the weight needs
    both of its operands transposed.
    """
    unit = np.where(vendor, 1.0, 2.0) * (rates.cast_bytes / rates.bytes_per_s)
    batch, n, k = products.batch[:count], products.n[:count], products.k[:count]
    inputs = batch * products.m[:count] * k
    gradients = batch * products.m[:count] * n
    seconds = np.zeros_like(products.m)
    seconds[:count] = inputs + np.where(vendor, 0.0, batch * n * k)
    seconds[count : 2 * count] = gradients
    if len(seconds) > 2 * count:
        seconds[2 * count :] = (inputs + gradients) / 2.0
    return seconds * unit


def _mlp_again(products: Floats, has_router: bool, vendor: Bools) -> Floats:
    """Seconds of the feed-forward's products that its own checkpoint repeats [shapes].

    PyTorch's checkpoint stops once all that is saved is there, before the last product; Megatron's
    runs whole.
    """
    whole: Floats = products.sum(0)
    if not len(products):
        return whole
    return whole - np.where(vendor, 0.0, products[1 + has_router])


def _loose_seconds(
    model: ModelSpec,
    layer: Layer,
    table: PlanTable,
    rates: Rates,
    p: Passes,
    tokens: Floats,
    inner: Floats,
    wide: Floats,
    routed: Floats,
) -> tuple[Floats, Floats]:
    """Time of the element-wise kernels of both passes, without launches [plans].

    inner: activated elements; wide: elements of query and key; routed: tokens in expert order.
    Sequence parallelism shares norms and residuals over the tensor-parallel ranks.
    """
    unit = rates.element_bytes / rates.bytes_per_s
    hidden = np.where(table.sequence_parallel, tokens / table.tp, tokens) * model.hidden
    moved = router_passes(layer.moe) * routed * model.hidden
    forward = (p.norm_forward + p.residual_forward) * hidden
    forward = forward + p.activation_forward * inner + p.rotary_forward * wide + moved
    backward = (p.norm_backward + p.residual_backward) * hidden
    backward = backward + p.activation_backward * inner + p.rotary_backward * wide + moved
    return unit * forward, unit * backward


def _adapter_seconds(
    training: TrainingSpec, products: list[_Product], adapted: int, rates: Rates
) -> Floats:
    """Time of low-rank adapters beside the first `adapted` frozen products, and of unpacking a
    4-bit base.

    An adapter reads its input, writes and reads the rank-wide middle, and adds to the output:
    bound by memory (LoRA, arXiv 2106.09685, section 4). NF4 weights are expanded to 16 bits
    before each product: 0.5 bytes read, 2 written (QLoRA, arXiv 2305.14314, section 3).
    """
    total = np.zeros_like(products[0][0])
    if training.lora is None:
        return total
    for place, (m, n, k, batch) in enumerate(products):
        if place < adapted:
            moved = batch * m * (k + 4 * n + 2 * training.lora.rank) * rates.element_bytes
            total = total + moved / rates.bytes_per_s + 3 * rates.gpu.kernel_overhead_us * 1e-6
        if training.lora.quantized_base:
            total = total + 2.5 * batch * n * k / rates.bytes_per_s
    return total
