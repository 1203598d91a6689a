"""Mixture-of-experts decoders with grouped-query attention."""

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.grouped import Style, grouped_decoder
from cost_model.specs.architectures.stack import Stack, architecture
from cost_model.specs.model import Moe


def experts_of(
    c: Fields,
    *,
    experts: str = "num_local_experts",
    top_k: str = "num_experts_per_tok",
    width: str = "intermediate_size",
    gated: bool = True,
    bias: bool = False,
    shared: int = 0,
) -> Moe:
    """The experts of a layer, by the names of their fields; a token passes at most all of them."""
    count = c.integer(experts)
    chosen = c.integer(top_k)
    if chosen > count:
        raise c.error(top_k, f"must be at most the number of experts ({count})")
    return Moe(
        experts=count,
        top_k=chosen,
        intermediate=c.integer(width),
        gated=gated,
        bias=bias,
        shared_intermediate=shared,
    )


@architecture("mixtral", "MixtralForCausalLM")
def mixtral(c: Fields) -> Stack:
    """Mixtral (arXiv 2401.04088)."""
    return grouped_decoder(c, Style(), moe=lambda c, _: experts_of(c), windows=windows.everywhere)


def _qwen_experts(c: Fields, i: int, shared: int = 0) -> Moe | None:
    """Every `decoder_sparse_step`-th layer has experts, but for those in `mlp_only_layers`."""
    step = c.integer("decoder_sparse_step")
    dense = c.integers("mlp_only_layers") or ()
    if i in dense or (i + 1) % step or c.integer("num_experts", minimum=0) == 0:
        return None
    return experts_of(c, experts="num_experts", width="moe_intermediate_size", shared=shared)


@architecture("qwen3_moe", "Qwen3MoeForCausalLM")
def qwen3_moe(c: Fields) -> Stack:
    """Qwen3-MoE (arXiv 2505.09388)."""
    bias = c.boolean("attention_bias")
    style = Style(qkv_bias=bias, out_bias=bias, qk_norm="head")
    return grouped_decoder(c, style, moe=_qwen_experts, windows=windows.after_max_window_layers)
