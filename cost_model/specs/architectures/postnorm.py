"""Dense decoders with RMS norms elsewhere than before each sub-layer, or with none to learn."""

from dataclasses import replace

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.grouped import Style, grouped_decoder
from cost_model.specs.architectures.llama import biased
from cost_model.specs.architectures.stack import Stack, architecture


@architecture("olmo", "OlmoForCausalLM")
def olmo(c: Fields) -> Stack:
    """OLMo (arXiv 2402.00838): layer norms without parameters."""
    style = replace(biased(c), mlp_bias=False, norm="layernorm", norm_vectors=0)
    return grouped_decoder(c, style)


@architecture("olmo2", "Olmo2ForCausalLM")
def olmo2(c: Fields) -> Stack:
    """OLMo 2 (arXiv 2501.00656): norms after each sub-layer, and over all queries and keys."""
    return grouped_decoder(c, replace(biased(c, qk_norm="full"), mlp_bias=False))


@architecture("olmo3", "Olmo3ForCausalLM")
def olmo3(c: Fields) -> Stack:
    """OLMo 3: OLMo 2 with a window on three layers of four."""
    style = replace(biased(c, qk_norm="full"), mlp_bias=False)
    return grouped_decoder(c, style, windows=windows.full_every(4))


@architecture("exaone4", "Exaone4ForCausalLM")
def exaone4(c: Fields) -> Stack:
    """EXAONE 4 (arXiv 2507.11407): norms after each sub-layer, windows on three of four."""
    return grouped_decoder(c, Style(qk_norm="head"), windows=exaone_windows)


def exaone_windows(c: Fields, layers: int) -> windows.Windows:
    """`sliding_window_pattern` may be a period or letters, an L for each layer with the window."""
    pattern = c.value("sliding_window_pattern")
    if not isinstance(pattern, str):
        return windows.full_every_pattern(4)(c, layers)
    if c.given("layer_types"):
        return windows.as_typed(c, layers)
    if not pattern or set(pattern) - set("LG"):
        raise c.error("sliding_window_pattern", "must be a period or letters L and G")
    window = c.optional_integer("sliding_window")
    return tuple(window if pattern[i % len(pattern)] == "L" else None for i in range(layers))


@architecture("glm4", "Glm4ForCausalLM")
def glm4(c: Fields) -> Stack:
    """GLM-4 0414: norms before and after each sub-layer."""
    return grouped_decoder(c, Style(qkv_bias=c.boolean("attention_bias"), norms=4))


@architecture("hyperclovax", "HyperCLOVAXForCausalLM")
def hyperclovax(c: Fields) -> Stack:
    """HyperCLOVA X: norms after each sub-layer too, where `use_post_norm` says so."""
    norms = 4 if c.boolean("use_post_norm") else 2
    return grouped_decoder(c, replace(biased(c), norms=norms))
