"""Mixture-of-experts sub-layers: a router and many feed-forward networks.

Two forms: one rank holds all experts and drops no token (as transformers has it), or DeepSpeed's
layer, which cuts experts over ranks and gives each a capacity.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_model.specs import Mlp, Moe
from trials.model.activations import activation
from trials.model.build import Build
from trials.model.mlp import FeedForward


class Router(nn.Module):
    """Scores of each expert, and the k best with weights that sum to one."""

    def __init__(self, hidden: int, experts: int, top_k: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, hidden))
        self.top_k = top_k

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x: [tokens, hidden]; returns logits [tokens, experts], weights, indices [tokens, k]."""
        logits = functional.linear(x, self.weight)
        shares = logits.softmax(-1, dtype=torch.float32)
        top, index = shares.topk(self.top_k, dim=-1)
        return logits, (top / top.sum(-1, keepdim=True)).to(x.dtype), index


class Experts(nn.Module):
    """All routed experts of a layer as stacked matrices, applied one after the other."""

    def __init__(self, build: Build, spec: Moe):
        super().__init__()
        hidden, width = build.model.hidden, spec.intermediate
        up = 2 * width if spec.gated else width
        self.gated, self.count = spec.gated, spec.experts
        self.gate_up_proj = nn.Parameter(torch.empty(spec.experts, up, hidden))
        self.down_proj = nn.Parameter(torch.empty(spec.experts, hidden, width))
        self.up_bias = nn.Parameter(torch.empty(spec.experts, up)) if spec.bias else None
        self.down_bias = nn.Parameter(torch.empty(spec.experts, hidden)) if spec.bias else None
        self.act = activation(build.model.activation)

    def forward(self, x: Tensor, weights: Tensor, index: Tensor) -> Tensor:
        """x: [tokens, hidden]; weights and index: [tokens, k]."""
        out = torch.zeros_like(x)
        k = index.shape[-1]
        order = index.flatten().argsort()
        start = 0
        for expert, count in enumerate(self._counts(index)):
            if count == 0:
                continue
            places = order[start : start + count]
            start += count
            tokens = places // k
            y = self._expert(x[tokens], expert)
            y = y * weights.flatten()[places].unsqueeze(-1)
            out.index_add_(0, tokens, y)
        return out

    def _counts(self, index: Tensor) -> list[int]:
        if index.device.type == "gpu":  # the fake device has no values: a balanced load
            share, more = divmod(index.numel(), self.count)
            return [share + (expert < more) for expert in range(self.count)]
        counts: list[int] = torch.bincount(index.flatten(), minlength=self.count).tolist()
        return counts

    def _expert(self, x: Tensor, expert: int) -> Tensor:
        up_bias = None if self.up_bias is None else self.up_bias[expert]
        down_bias = None if self.down_bias is None else self.down_bias[expert]
        y = functional.linear(x, self.gate_up_proj[expert], up_bias)
        if self.gated:
            gate, up = y.chunk(2, dim=-1)
            y = self.act(gate) * up
        else:
            y = self.act(y)
        return functional.linear(y, self.down_proj[expert], down_bias)


def balance_loss(logits: Tensor, index: Tensor) -> Tensor:
    """Load-balancing loss of arXiv 2101.03961, equation 4: 1 where the load is even."""
    experts = logits.shape[-1]
    shares = logits.softmax(-1, dtype=torch.float32).mean(0)
    chosen = functional.one_hot(index[:, 0], experts).float().mean(0)
    return experts * (shares * chosen).sum()


class MixtureOfExperts(nn.Module):
    """Router, experts and the shared experts that every token passes; drops no token."""

    def __init__(self, build: Build, spec: Moe):
        super().__init__()
        self.gate = Router(build.model.hidden, spec.experts, spec.top_k)
        self.experts = Experts(build, spec)
        self.shared_experts = shared_experts(build, spec)
        self.aux_loss: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x: [b, s, hidden]."""
        flat = x.flatten(0, -2)
        _, weights, index = self.gate(flat)
        out = self.experts(flat, weights, index).view_as(x)
        return out if self.shared_experts is None else out + self.shared_experts(x)


def shared_experts(build: Build, spec: Moe) -> FeedForward | None:
    """The experts that every token passes, as one dense network."""
    if not spec.shared_intermediate:
        return None
    shape = Mlp(intermediate=spec.shared_intermediate, gated=spec.gated, bias=spec.bias)
    return FeedForward(build, shape)


def _without_graph(gate: nn.Module, args: Any, out: Any) -> Any:
    """What DeepSpeed's gate returns, of which the first is its balance loss."""
    return (out[0].detach(), *out[1:])


class DeepSpeedMixture(nn.Module):
    """DeepSpeed's MoE layer (arXiv 2201.05596): experts over ranks, a capacity for each expert."""

    def __init__(self, build: Build, spec: Moe):
        super().__init__()
        from deepspeed.moe.layer import MoE

        expert = FeedForward(
            build, Mlp(intermediate=spec.intermediate, gated=spec.gated, bias=spec.bias)
        )
        capacity = build.capacity_factor or float(spec.experts)
        self.moe = MoE(
            build.model.hidden,
            expert,
            num_experts=spec.experts,
            ep_size=build.ep,
            k=spec.top_k,
            capacity_factor=capacity,
            eval_capacity_factor=capacity,
            drop_tokens=build.capacity_factor > 0,
            use_rts=False,
            top2_2nd_expert_sampling=False,
        )
        # DeepSpeed's layer keeps its balance loss as an attribute. Under recompute that is the
        # second pass's, whose graph nobody runs backward: it would hold all that the pass saved.
        self.moe.deepspeed_moe.gate.register_forward_hook(_without_graph)
        self._name_experts(build)
        self.shared_experts = shared_experts(build, spec)
        self.aux_loss: Any = None

    def _name_experts(self, build: Build) -> None:
        """Tells each local expert's parameters which expert of the layer they belong to."""
        local = self.moe.deepspeed_moe.experts.deepspeed_experts
        first = build.mesh.dp.rank % build.ep * len(local)
        for i, expert in enumerate(local):
            for parameter in expert.parameters():
                parameter.expert = first + i
                parameter.local_expert = i

    def forward(self, x: Tensor) -> Tensor:
        """x: [b, s, hidden]."""
        out: Tensor
        out, self.aux_loss, _ = self.moe(x)
        return out if self.shared_experts is None else out + self.shared_experts(x)


def mixture(build: Build, spec: Moe) -> nn.Module:
    """The mixture that the plan asks for."""
    return (
        DeepSpeedMixture(build, spec) if build.deepspeed_experts else MixtureOfExperts(build, spec)
    )
