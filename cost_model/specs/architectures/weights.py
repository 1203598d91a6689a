"""Parameters of the parts of a layer, by how they shard.

Linear maps follow Megatron-LM's split (arXiv 1909.08053, section 3): the first of a pair is cut
by columns, its bias with it; the second by rows, its bias whole on every rank.
"""

from dataclasses import dataclass

from cost_model.specs.model import Attention, LatentAttention, Layer, Mlp, Moe


@dataclass(frozen=True)
class Weights:
    """Parameter counts of a part. `matmul` counts the matrices among them that all tokens pass."""

    sharded: int = 0
    replicated: int = 0
    expert: int = 0
    matmul: int = 0

    def __add__(self, other: "Weights") -> "Weights":
        return Weights(
            self.sharded + other.sharded,
            self.replicated + other.replicated,
            self.expert + other.expert,
            self.matmul + other.matmul,
        )


NOTHING = Weights()
"""A part without parameters."""


def column(n_in: int, n_out: int, bias: bool = False) -> Weights:
    """A matrix cut by columns under tensor parallelism."""
    return Weights(sharded=n_in * n_out + bias * n_out, matmul=n_in * n_out)


def row(n_in: int, n_out: int, bias: bool = False) -> Weights:
    """A matrix cut by rows under tensor parallelism; its bias is replicated."""
    return Weights(sharded=n_in * n_out, replicated=bias * n_out, matmul=n_in * n_out)


def whole(n_in: int, n_out: int, bias: bool = False) -> Weights:
    """A matrix that every rank of the tensor-parallel group holds whole (routers, down-ranks)."""
    return Weights(replicated=n_in * n_out + bias * n_out, matmul=n_in * n_out)


def vector(width: int) -> Weights:
    """A replicated vector: a norm's scale or shift."""
    return Weights(replicated=width)


def attention_weights(hidden: int, a: Attention, key_value_input: int | None = None) -> Weights:
    """Query, key, value and output matrices; keys may read another width (cross-attention)."""
    source = hidden if key_value_input is None else key_value_input
    if a.latent is not None:
        return _latent_weights(hidden, a, a.latent)
    return (
        column(hidden, a.heads * a.head_dim, a.qkv_bias)
        + column(source, a.kv_heads * a.head_dim, a.qkv_bias)
        + column(source, a.kv_heads * a.value_head_dim, a.qkv_bias)
        + row(a.heads * a.value_head_dim, hidden, a.out_bias)
    )


def _latent_weights(hidden: int, a: Attention, latent: LatentAttention) -> Weights:
    """Multi-head latent attention (arXiv 2405.04434, section 2.1).

    The down-projections and their norms are whole on each rank, the up-projections cut by heads.
    `qkv_bias` is a bias on the down-projections.
    """
    queries = a.heads * a.head_dim
    if latent.q_lora_rank is None:
        query = column(hidden, queries)
    else:
        query = (
            whole(hidden, latent.q_lora_rank, a.qkv_bias)
            + vector(latent.q_lora_rank)
            + column(latent.q_lora_rank, queries)
        )
    return (
        query
        + whole(hidden, latent.kv_lora_rank + latent.rope_head_dim, a.qkv_bias)
        + vector(latent.kv_lora_rank)
        + column(latent.kv_lora_rank, a.heads * (latent.nope_head_dim + a.value_head_dim))
        + row(a.heads * a.value_head_dim, hidden, a.out_bias)
    )


def mlp_weights(hidden: int, mlp: Mlp) -> Weights:
    """Up (and gate) and down matrices."""
    up = column(hidden, mlp.intermediate, mlp.bias)
    return up + (up if mlp.gated else Weights()) + row(mlp.intermediate, hidden, mlp.bias)


def moe_weights(
    hidden: int, moe: Moe, router_bias: bool = False, shared_bias: bool | None = None
) -> Weights:
    """Router, all routed experts, and the shared experts as one dense MLP."""
    matrices = 3 if moe.gated else 2
    width = moe.intermediate
    each = matrices * hidden * width + moe.bias * ((matrices - 1) * width + hidden)
    shared = NOTHING
    if moe.shared_intermediate:
        bias = moe.bias if shared_bias is None else shared_bias
        shared = mlp_weights(
            hidden, Mlp(intermediate=moe.shared_intermediate, gated=moe.gated, bias=bias)
        )
    return whole(hidden, moe.experts, router_bias) + Weights(expert=moe.experts * each) + shared


def layer(
    weights: Weights,
    *,
    norms: int,
    attention: Attention | None = None,
    mlp: Mlp | None = None,
    moe: Moe | None = None,
    cross_attention: Attention | None = None,
    parallel_residual: bool = False,
) -> Layer:
    """A layer of the given parts; `weights` is the sum of all of them, norms included."""
    return Layer(
        attention=attention,
        mlp=mlp,
        moe=moe,
        cross_attention=cross_attention,
        norms=norms,
        parallel_residual=parallel_residual,
        tp_sharded_params=weights.sharded,
        replicated_params=weights.replicated,
        expert_params=weights.expert,
        matmul_params=weights.matmul,
    )
