"""Dense decoders with grouped-query attention and layer norms."""

from dataclasses import replace

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.grouped import Style, grouped_decoder
from cost_model.specs.architectures.llama import biased
from cost_model.specs.architectures.stack import Stack, architecture


@architecture("starcoder2", "Starcoder2ForCausalLM")
def starcoder2(c: Fields) -> Stack:
    """StarCoder2 (arXiv 2402.19173)."""
    bias = c.boolean("use_bias")
    style = Style(
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        gated=False,
        norm="layernorm",
        norm_vectors=2,
        dropout=c.number("residual_dropout"),
    )
    return grouped_decoder(c, style, windows=windows.everywhere)


@architecture("stablelm", "StableLmForCausalLM")
def stablelm(c: Fields) -> Stack:
    """StableLM 3B and 2: norms of queries and keys have scales per head, no shifts."""
    parallel = c.boolean("use_parallel_residual")
    style = Style(
        qkv_bias=c.boolean("use_qkv_bias"),
        qk_norm="heads" if c.boolean("qk_layernorm") else "none",
        norm="layernorm",
        norm_vectors=2,
        norms=1 if parallel else 2,
        parallel_residual=parallel,
        dropout=c.number("hidden_dropout"),
    )
    return grouped_decoder(c, style)


@architecture("cohere", "CohereForCausalLM")
def cohere(c: Fields) -> Stack:
    """Command R: one norm for attention and MLP, which run in parallel; no shifts."""
    style = replace(_cohere(c), qk_norm="heads" if c.boolean("use_qk_norm") else "none")
    return grouped_decoder(c, style)


@architecture("cohere2", "Cohere2ForCausalLM")
def cohere2(c: Fields) -> Stack:
    """Command R7B and A: Cohere with a window on three layers of four."""
    return grouped_decoder(c, _cohere(c), windows=windows.full_every_pattern(4))


def _cohere(c: Fields) -> Style:
    return replace(biased(c), mlp_bias=False, norm="layernorm", norms=1, parallel_residual=True)


@architecture("phi", "PhiForCausalLM")
def phi(c: Fields) -> Stack:
    """Phi-1.5 and 2 (arXiv 2309.05463): biases everywhere, the output matrix too."""
    style = Style(
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        gated=False,
        qk_norm="head" if c.boolean("qk_layernorm") else "none",
        qk_norm_vectors=2,
        norm="layernorm",
        norm_vectors=2,
        norms=1,
        parallel_residual=True,
        head_bias=True,
        dropout=c.number("resid_pdrop"),
    )
    return grouped_decoder(c, style)


@architecture("persimmon", "PersimmonForCausalLM")
def persimmon(c: Fields) -> Stack:
    """Persimmon 8B: every head has its own keys and values."""
    style = Style(
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        gated=False,
        qk_norm="head" if c.boolean("qk_layernorm") else "none",
        qk_norm_vectors=2,
        norm="layernorm",
        norm_vectors=2,
        grouped=False,
        dropout=c.number("hidden_dropout"),
    )
    return grouped_decoder(c, style)


@architecture("gpt_neox", "GPTNeoXForCausalLM")
def gpt_neox(c: Fields) -> Stack:
    """GPT-NeoX-20B (arXiv 2204.06745) and Pythia."""
    bias = c.boolean("attention_bias")
    style = Style(
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=True,
        gated=False,
        norm="layernorm",
        norm_vectors=2,
        parallel_residual=c.boolean("use_parallel_residual"),
        grouped=False,
        dropout=c.number("hidden_dropout"),
    )
    return grouped_decoder(c, style)


@architecture("nemotron", "NemotronForCausalLM")
def nemotron(c: Fields) -> Stack:
    """Nemotron-4 and Minitron (arXiv 2402.16819)."""
    return grouped_decoder(c, replace(biased(c, gated=False), norm="layernorm", norm_vectors=2))


@architecture("jais2", "Jais2ForCausalLM")
def jais2(c: Fields) -> Stack:
    """Jais 2."""
    return grouped_decoder(c, replace(biased(c, gated=False), norm="layernorm", norm_vectors=2))
