"""One transformer layer."""

import torch
from torch import Tensor, nn

from cost_model.specs import Layer
from trials.model.attention import attention
from trials.model.build import Build
from trials.model.experts import mixture
from trials.model.kernels import drop
from trials.model.mlp import FeedForward
from trials.model.norms import norm
from trials.model.positions import Positions
from trials.model.recompute import run_feed_forward
from trials.model.unsupported import UnsupportedModel


def count(module: nn.Module) -> int:
    """Parameters of a module, shards as they are."""
    return sum(p.numel() for p in module.parameters())


class Block(nn.Module):
    """Pre-norm attention and feed-forward, one after the other or in parallel."""

    def __init__(self, build: Build, spec: Layer, positions: Positions):
        super().__init__()
        if spec.cross_attention is not None:
            raise UnsupportedModel("cross-attention is not built in trials")
        if spec.attention is None:
            raise UnsupportedModel("layers without attention are not built in trials")
        hidden = build.model.hidden
        layout = layer_layout(build, spec)
        self.build = build
        self.parallel = spec.parallel_residual
        self.input_layernorm = norm(build, hidden, layout.norm_vectors)
        self.post_attention_layernorm = (
            norm(build, hidden, layout.norm_vectors) if layout.norms > 1 else None
        )
        # Sandwich norms (Gemma 2) follow the sub-layers.
        self.attention_out_norm = (
            norm(build, hidden, layout.norm_vectors) if layout.norms > 3 else None
        )
        self.mlp_out_norm = norm(build, hidden, layout.norm_vectors) if layout.norms > 3 else None
        self.self_attn = attention(build, spec.attention, positions, layout.qk_norm)
        self.mlp: nn.Module
        if spec.moe is not None:
            self.mlp = mixture(build, spec.moe)
        elif spec.mlp is not None:
            self.mlp = FeedForward(build, spec.mlp)
        else:
            raise UnsupportedModel("layers without a feed-forward are not built in trials")
        self.unmodelled = (
            nn.Parameter(torch.empty(layout.unmodelled)) if layout.unmodelled else None
        )

    def forward(self, x: Tensor, mlp_again: bool = False) -> Tensor:
        """x: [b, s, hidden]; mlp_again: the feed-forward's activations are recomputed."""
        p = self.build.dropout if self.training else 0.0
        normed = self.input_layernorm(x)
        attended = self.self_attn(normed)
        if self.attention_out_norm is not None:
            attended = self.attention_out_norm(attended)
        if self.parallel:
            second = normed
            if self.post_attention_layernorm is not None:
                second = self.post_attention_layernorm(x)
            fed = run_feed_forward(self.build, self.mlp, second, mlp_again)
            return x + drop(attended + fed, p)
        x = x + drop(attended, p)
        second = x if self.post_attention_layernorm is None else self.post_attention_layernorm(x)
        out = run_feed_forward(self.build, self.mlp, second, mlp_again)
        if self.mlp_out_norm is not None:
            out = self.mlp_out_norm(out)
        x = x + drop(out, p)
        if self.unmodelled is not None:
            x = x + 0.0 * self.unmodelled.sum()
        return x


class Layout:
    """What a layer's parameter counts say beyond its fields: its norms, and the remainder."""

    def __init__(self, norms: int, norm_vectors: int, qk_norm: str | None, unmodelled: int):
        self.norms = norms
        self.norm_vectors = norm_vectors
        self.qk_norm = qk_norm
        self.unmodelled = unmodelled
        """Parameters that no field explains; held and trained, but without effect."""


def layer_layout(build: Build, spec: Layer) -> Layout:
    """Reads the norms of a layer off its parameter counts.

    A ModelSpec gives counts, not every vector: what the matrices, their biases and the router
    leave over is norms over the hidden size, then norms on queries and keys.
    """
    hidden = build.model.hidden
    replicated = spec.replicated_params - _replicated_matrices(hidden, spec)
    most = 1 if build.model.norm == "rmsnorm" else 2
    vectors = min(most, replicated // (spec.norms * hidden)) if spec.norms else 0
    rest = replicated - vectors * spec.norms * hidden
    sharded = spec.tp_sharded_params - _sharded_matrices(hidden, spec)
    qk_norm = None
    a = spec.attention
    if a is not None and a.latent is None:
        if rest == 2 * a.head_dim:
            qk_norm, rest = "head", 0
        elif sharded and sharded == (a.heads + a.kv_heads) * a.head_dim:
            qk_norm, sharded = "full", 0
    if rest < 0 or sharded < 0:
        raise UnsupportedModel(
            f"a layer of {build.model.architecture} has {-min(rest, 0) - min(sharded, 0)} "
            "parameters fewer than its matrices and norms need: layers that share weights, or of "
            "another make, are not built in trials"
        )
    beyond = spec.norms - norms_built(spec.norms)
    return Layout(spec.norms, vectors, qk_norm, rest + sharded + beyond * vectors * hidden)


def norms_built(norms: int) -> int:
    """Of so many norms over the hidden size: before each sub-layer, and after each (Gemma 2)."""
    if norms > 3:
        return 4
    return min(norms, 2)


def _replicated_matrices(hidden: int, spec: Layer) -> int:
    total = 0
    a = spec.attention
    if a is not None:
        total += a.out_bias * hidden
        if a.latent is not None:
            lat = a.latent
            down = lat.kv_lora_rank + lat.rope_head_dim
            total += hidden * down + a.qkv_bias * down + lat.kv_lora_rank
            if lat.q_lora_rank is not None:
                total += lat.q_lora_rank * (hidden + 1 + a.qkv_bias)
    if spec.mlp is not None:
        total += spec.mlp.bias * hidden
    if spec.moe is not None:
        total += hidden * spec.moe.experts
        total += hidden if spec.moe.bias and spec.moe.shared_intermediate else 0
    return total


def _sharded_matrices(hidden: int, spec: Layer) -> int:
    total = 0
    a = spec.attention
    if a is not None and a.latent is None:
        columns = (a.heads + a.kv_heads) * a.head_dim + a.kv_heads * a.value_head_dim
        total += columns * (hidden + a.qkv_bias) + a.heads * a.value_head_dim * hidden
    elif a is not None and a.latent is not None:
        lat = a.latent
        source = hidden if lat.q_lora_rank is None else lat.q_lora_rank
        total += source * a.heads * a.head_dim
        total += lat.kv_lora_rank * a.heads * (lat.nope_head_dim + a.value_head_dim)
        total += a.heads * a.value_head_dim * hidden
    if spec.mlp is not None:
        ups = 2 if spec.mlp.gated else 1
        total += ups * spec.mlp.intermediate * (hidden + spec.mlp.bias)
        total += spec.mlp.intermediate * hidden
    if spec.moe is not None and spec.moe.shared_intermediate:
        width = spec.moe.shared_intermediate
        ups = 2 if spec.moe.gated else 1
        total += ups * width * (hidden + spec.moe.bias) + width * hidden
    return total
