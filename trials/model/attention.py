"""Attention with grouped key and value heads, and what stands around its core."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cost_model.plans import Recompute
from cost_model.specs import Attention
from trials.model.build import Build
from trials.model.kernels import attend
from trials.model.lora import linear_column, linear_row
from trials.model.norms import RmsNorm, ShardedRmsNorm
from trials.model.positions import Positions, alibi_slopes, rotate
from trials.model.unsupported import UnsupportedModel
from trials.parallel.ring import Mask, ring_attention
from trials.parallel.tensor import mark_sequence_parallel
from trials.parallel.ulysses import gather_heads, scatter_heads


class AttentionCore(nn.Module):
    """softmax(q k^T) v of this rank's heads, across sequence shards where there are any."""

    def __init__(self, build: Build, spec: Attention, positions: Positions):
        super().__init__()
        self.build, self.spec, self.positions = build, spec, positions
        self.selective = build.recompute is Recompute.SELECTIVE

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q: [b, heads, s, d], k and v with kv heads; returns [b, heads, s, value width]."""
        mesh = self.build.mesh
        q, k, v = (scatter_heads(x, mesh.sp) for x in (q, k, v))
        if self.selective and self.training:
            out = checkpoint(self._local, q, k, v, use_reentrant=False, preserve_rng_state=True)
        else:
            out = self._local(q, k, v)
        return gather_heads(out, mesh.sp)

    def _local(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        build, spec = self.build, self.spec
        alibi = build.model.position == "alibi"
        own = q.shape[1]
        tp, sp = build.heads_axis, build.mesh.sp
        ranks, first = tp.size * sp.size, (tp.rank * sp.size + sp.rank) * own
        if build.mesh.cp.size > 1:
            slopes = tuple(alibi_slopes(own * ranks)[first : first + own]) if alibi else ()
            return ring_attention(q, k, v, build.mesh.cp, Mask(spec.causal, spec.window, slopes))
        bias = None
        flash = build.attention not in ("eager", "fused_softmax") and q.device.type == "gpu"
        if alibi and not flash:
            bias = self.positions.alibi(q, q.shape[2], own, first, own * ranks)
        return attend(
            build.attention,
            q,
            k,
            v,
            causal=spec.causal,
            window=spec.window,
            bias=bias,
            dropout=build.dropout if self.training else 0.0,
        )


class SelfAttention(nn.Module):
    """Multi-head attention with fewer key and value heads where the model has them (GQA).

    `qk_norm` is the width of the norms on queries and keys: None has none, head_dim norms each
    head, anything else the whole projection.
    """

    def __init__(
        self, build: Build, spec: Attention, positions: Positions, qk_norm: str | None = None
    ):
        super().__init__()
        self.build, self.spec, self.positions = build, spec, positions
        hidden = build.model.hidden
        heads, kv, width, value = spec.heads, spec.kv_heads, spec.head_dim, spec.value_head_dim
        self.q_proj = linear_column(build, "attention", hidden, heads * width, spec.qkv_bias, width)
        self.k_proj = linear_column(build, "attention", hidden, kv * width, spec.qkv_bias, width)
        self.v_proj = linear_column(build, "attention", hidden, kv * value, spec.qkv_bias, value)
        self.o_proj = linear_row(build, "attention", heads * value, hidden, spec.out_bias)
        self.qk_norm = qk_norm
        if qk_norm == "head":
            self.q_norm, self.k_norm = RmsNorm(width), RmsNorm(width)
            if build.mesh.tp.size > 1:  # each rank norms its own heads with the same weights
                _mark_partial(self.q_norm, self.k_norm)
        elif qk_norm == "full":
            if build.engine_tp.size > 1:
                raise UnsupportedModel(
                    f"AutoTP does not cut the norms over all heads of {build.model.architecture}"
                )
            self.q_norm = ShardedRmsNorm(heads * width, build.mesh.tp)
            self.k_norm = ShardedRmsNorm(kv * width, build.mesh.tp)
        self.core = AttentionCore(build, spec, positions)

    def forward(self, x: Tensor) -> Tensor:
        """x: [b, s, hidden], sharded by sequence under sequence parallelism."""
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.qk_norm == "full":
            q, k = self.q_norm(q), self.k_norm(k)
        q = q.unflatten(-1, (-1, self.spec.head_dim)).transpose(1, 2)
        k = k.unflatten(-1, (-1, self.spec.head_dim)).transpose(1, 2)
        v = v.unflatten(-1, (-1, self.spec.value_head_dim)).transpose(1, 2)
        if self.qk_norm == "head":
            q, k = self.q_norm(q), self.k_norm(k)
        if self.build.model.position == "rotary":
            q, k = rotate_both(self.build, self.positions, q, k, self.spec.head_dim)
        out = self.core(q, k, v)
        return self.o_proj(out.transpose(1, 2).flatten(2))


def _mark_partial(*modules: nn.Module) -> None:
    """Whole parameters of which each tensor-parallel rank sees but a part of what they act on."""
    for module in modules:
        for parameter in module.parameters():
            mark_sequence_parallel(parameter)


def sequence_offset(build: Build, length: int) -> int:
    """Position of this rank's first token, where the sequence is sharded (Ulysses, ring)."""
    mesh = build.mesh
    return (mesh.cp.rank * mesh.sp.size + mesh.sp.rank) * length


def rotate_both(
    build: Build, positions: Positions, q: Tensor, k: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """Rotary positions on queries and keys [b, heads, s, d]."""
    length = q.shape[2]
    tables = positions.rotary(q, length, sequence_offset(build, length), width)
    return rotate(q, tables, width), rotate(k, tables, width)


class LatentSelfAttention(nn.Module):
    """Multi-head latent attention (arXiv 2405.04434, section 2.1), uncompressed for training.

    The down-projections are whole on every rank, the up-projections cut by heads.
    """

    def __init__(self, build: Build, spec: Attention, positions: Positions):
        super().__init__()
        if spec.latent is None:
            raise ValueError("latent attention needs the ranks of its projections")
        self.build, self.spec, self.latent, self.positions = build, spec, spec.latent, positions
        hidden, heads = build.model.hidden, spec.heads
        lat = spec.latent
        self.query_rank = lat.q_lora_rank
        if lat.q_lora_rank is None:
            self.q_proj = linear_column(
                build, "attention", hidden, heads * spec.head_dim, False, spec.head_dim
            )
        else:
            self.q_a_proj = nn.Linear(hidden, lat.q_lora_rank, bias=spec.qkv_bias)
            self.q_a_layernorm = RmsNorm(lat.q_lora_rank)
            self.q_b_proj = linear_column(
                build, "attention", lat.q_lora_rank, heads * spec.head_dim, False, spec.head_dim
            )
        self.kv_a_proj_with_mqa = nn.Linear(
            hidden, lat.kv_lora_rank + lat.rope_head_dim, bias=spec.qkv_bias
        )
        self.kv_a_layernorm = RmsNorm(lat.kv_lora_rank)
        if build.shards_sequence:
            _mark_partial(
                self.kv_a_proj_with_mqa,
                self.kv_a_layernorm,
                *([] if lat.q_lora_rank is None else [self.q_a_proj, self.q_a_layernorm]),
            )
        up = lat.nope_head_dim + spec.value_head_dim
        self.kv_b_proj = linear_column(build, "attention", lat.kv_lora_rank, heads * up, False, up)
        self.o_proj = linear_row(
            build, "attention", heads * spec.value_head_dim, hidden, spec.out_bias
        )
        self.core = AttentionCore(build, spec, positions)

    def forward(self, x: Tensor) -> Tensor:
        """x: [b, s, hidden]."""
        lat = self.latent
        if self.query_rank is None:
            q = self.q_proj(x)
        else:
            q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = q.unflatten(-1, (-1, self.spec.head_dim)).transpose(1, 2)
        q_nope, q_rope = q.split([lat.nope_head_dim, lat.rope_head_dim], dim=-1)
        low, k_rope = self.kv_a_proj_with_mqa(x).split([lat.kv_lora_rank, lat.rope_head_dim], -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(low))
        kv = kv.unflatten(-1, (-1, lat.nope_head_dim + self.spec.value_head_dim)).transpose(1, 2)
        k_nope, v = kv.split([lat.nope_head_dim, self.spec.value_head_dim], dim=-1)
        # Under sequence parallelism the up-projections gather the sequence, this slice does not.
        k_rope = gather_like(k_rope, kv, self.build).unsqueeze(1)
        q_rope, k_rope = rotate_both(self.build, self.positions, q_rope, k_rope, lat.rope_head_dim)
        k_rope = k_rope.expand(-1, k_nope.shape[1], -1, -1)
        q = torch.cat((q_nope, q_rope), dim=-1)
        k = torch.cat((k_nope, k_rope), dim=-1)
        out = self.core(q, k, v)
        return self.o_proj(out.transpose(1, 2).flatten(2))


def gather_like(x: Tensor, heads: Tensor, build: Build) -> Tensor:
    """x [b, s or s / tp, d] with the sequence length of heads [b, heads, s, d]."""
    from trials.parallel.tensor import copy_to, gather_sequence

    if x.shape[1] != heads.shape[2]:
        return gather_sequence(x, build.mesh.tp, reduce=True)
    return copy_to(x, build.mesh.tp)


def attention(
    build: Build, spec: Attention, positions: Positions, qk_norm: str | None = None
) -> nn.Module:
    """The attention that a spec describes."""
    if spec.latent is not None:
        return LatentSelfAttention(build, spec, positions)
    return SelfAttention(build, spec, positions, qk_norm)
