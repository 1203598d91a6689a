"""Smaller runs that stand for a plan which needs more ranks than the executor has.

A rank of the proxy does what a rank of the plan does: its slice of the heads and widths, its
sequences, its ZeRO stage and recompute. Fewer are the ranks along each axis, the pipeline stages
(one stage's worth of layers, or two with the hand-over between them), and the layers. Two depths of
the same proxy tell what a layer costs from what a step costs anyway. Nothing is scaled up by hand:
the proxy's times go into the calibration, and the calibrated cost model predicts the full plan.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from cost_model.plans import Plan
from cost_model.specs import Attention, Layer, Mlp, ModelSpec, Moe, TrainingSpec
from trials.proposal import Proxy

MOST_ACCUMULATION = 4
"""Micro-batches of a proxy beyond what its pipeline needs; more of them tell nothing new."""


@dataclass(frozen=True)
class Small:
    """What a proxy trains."""

    model: ModelSpec
    training: TrainingSpec


def largest_divisor(n: int, most: int) -> int:
    """The largest divisor of n up to `most`, at least 1."""
    return max(d for d in range(1, max(min(n, most), 1) + 1) if n % d == 0)


def shrink(plan: Plan, model: ModelSpec, *, ranks: int, per_node: int) -> Proxy | None:
    """The deepest proxy of a plan on so many ranks; None where its slices do not come out even."""
    left = ranks
    tp = largest_divisor(plan.tp, left)
    left //= tp
    sequence = plan.sp * plan.cp
    sp = largest_divisor(plan.sp, left)
    left //= sp
    cp = largest_divisor(plan.cp, left)
    left //= cp
    pp = largest_divisor(plan.pp, min(left, 2))
    left //= pp
    dp = largest_divisor(plan.dp, left)
    ep = gcd(plan.ep, dp)
    world = tp * sp * cp * pp * dp
    accumulate = min(plan.grad_accum, max(MOST_ACCUMULATION, 2 * pp))
    made = plan.model_copy(
        update={
            "tp": tp,
            "sp": sp,
            "cp": cp,
            "pp": pp,
            "dp": dp,
            "ep": ep,
            "vpp": 1,
            "first_stage_layers": 0,
            "last_stage_layers": 0,
            "hpz": plan.hpz if world > per_node and world % plan.hpz == 0 else 1,
            "nodes": -(-world // per_node),
            "grad_accum": accumulate,
        }
    )
    proxy = Proxy(
        plan=made,
        layers=-(-model.layers // plan.pp) * pp,
        tensor_slices=plan.tp // tp,
        expert_slices=plan.ep // ep,
        sequence_slices=sequence // (sp * cp),
    )
    return proxy if _even(model, proxy) else None


def depths(proxy: Proxy, fits: Callable[[Proxy], bool]) -> tuple[Proxy, ...]:
    """The deepest variant that fits, and one of half its layers; fewer where there is no room."""
    unit = proxy.plan.pp
    deep = proxy.layers // unit
    while deep > 0 and not fits(at_depth(proxy, deep * unit)):
        deep //= 2
    if not deep:
        return ()
    found = [deep, deep // 2] if deep > 1 else [deep]
    return tuple(at_depth(proxy, count * unit) for count in found)


def at_depth(proxy: Proxy, layers: int) -> Proxy:
    """The same with other layers."""
    recomputed = min(proxy.plan.recompute_layers, layers)
    plan = proxy.plan.model_copy(update={"recompute_layers": recomputed})
    return proxy.model_copy(update={"layers": layers, "plan": plan})


def small(model: ModelSpec, training: TrainingSpec, proxy: Proxy) -> Small:
    """The model and the training of a proxy."""
    length = training.seq_len // proxy.sequence_slices
    batch = proxy.plan.global_batch
    made = training.model_copy(update={"seq_len": length, "global_batch": batch, "tokens": None})
    return Small(_model(model, proxy), made)


def _even(model: ModelSpec, proxy: Proxy) -> bool:
    cut, experts = proxy.tensor_slices, proxy.expert_slices
    sizes = [model.vocab] if cut > 1 else []
    for kind in model.kinds:
        if cut > 1 and kind.attention is not None:
            sizes += [kind.attention.heads, kind.attention.kv_heads]
        if kind.mlp is not None:
            sizes.append(kind.mlp.intermediate)
        if kind.moe is not None:
            sizes += [kind.moe.intermediate, kind.moe.shared_intermediate]
            if kind.moe.experts % experts or kind.moe.top_k > kind.moe.experts // experts:
                return False
    return all(size % cut == 0 for size in sizes)


def _model(model: ModelSpec, proxy: Proxy) -> ModelSpec:
    cut, total = proxy.tensor_slices, model.layers
    pattern = tuple(model.layer_pattern[i * total // proxy.layers] for i in range(proxy.layers))
    kinds = tuple(_kind(kind, cut, proxy.expert_slices, model.hidden) for kind in model.kinds)
    tables = model.vocab * model.hidden
    lost = tables - tables // cut
    heads = lost if model.head_params >= tables else 0
    return model.model_copy(
        update={
            "layer_pattern": pattern,
            "kinds": kinds,
            "vocab": model.vocab // cut,
            "embedding_params": model.embedding_params - lost,
            "head_params": model.head_params - heads,
            "head_matmul_params": model.head_matmul_params // cut,
        }
    )


def _kind(kind: Layer, cut: int, experts: int, hidden: int) -> Layer:
    attention: Attention | None = kind.attention
    mlp: Mlp | None = kind.mlp
    moe: Moe | None = kind.moe
    router = 0
    if attention is not None and cut > 1:
        attention = attention.model_copy(
            update={"heads": attention.heads // cut, "kv_heads": attention.kv_heads // cut}
        )
    if mlp is not None:
        mlp = mlp.model_copy(update={"intermediate": mlp.intermediate // cut})
    if moe is not None:
        router = hidden * (moe.experts - moe.experts // experts)
        moe = moe.model_copy(
            update={
                "experts": moe.experts // experts,
                "intermediate": moe.intermediate // cut,
                "shared_intermediate": moe.shared_intermediate // cut,
            }
        )
    return kind.model_copy(
        update={
            "attention": attention,
            "mlp": mlp,
            "moe": moe,
            "tp_sharded_params": kind.tp_sharded_params // cut,
            "replicated_params": kind.replicated_params - router,
            "expert_params": kind.expert_params // (cut * experts),
            "matmul_params": kind.matmul_params // cut,
        }
    )
