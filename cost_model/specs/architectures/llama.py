"""Llama and the dense decoders that differ from it in biases, gates, head norms and windows."""

from dataclasses import replace

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.grouped import QkNorm, Style, grouped_decoder
from cost_model.specs.architectures.stack import Stack, architecture
from cost_model.specs.architectures.weights import Weights, vector


def biased(c: Fields, *, qk_norm: QkNorm = "none", gated: bool = True) -> Style:
    """`attention_bias` on all four matrices of attention, `mlp_bias` on those of the MLP."""
    bias = c.boolean("attention_bias")
    return Style(
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=c.boolean("mlp_bias"),
        gated=gated,
        qk_norm=qk_norm,
    )


@architecture("llama", "LlamaForCausalLM")
def llama(c: Fields) -> Stack:
    """Llama 1 to 3 (arXiv 2302.13971, 2307.09288, 2407.21783), Yi, Vicuna, DeepSeek LLM."""
    return grouped_decoder(c, biased(c))


for _model_type in ("exaone", "internlm3", "iquestcoder"):
    architecture(_model_type, "LlamaForCausalLM")(llama)


@architecture("granite", "GraniteForCausalLM")
def granite(c: Fields) -> Stack:
    """Granite 3."""
    return grouped_decoder(c, biased(c))


@architecture("granite_swa", "GraniteSWAForCausalLM")
def granite_swa(c: Fields) -> Stack:
    """Granite with a sink for each head, and a window on three layers of four."""
    sinks = Weights(sharded=c.integer("num_attention_heads"))
    return grouped_decoder(c, replace(biased(c), extra=sinks), windows=windows.first_full_every(4))


@architecture("smollm3", "SmolLM3ForCausalLM")
def smollm3(c: Fields) -> Stack:
    """SmolLM3: rotary positions on three layers of four, the others may have a window."""
    return grouped_decoder(c, biased(c), windows=windows.as_typed)


@architecture("helium", "HeliumForCausalLM")
def helium(c: Fields) -> Stack:
    """Helium: the output projection of attention has no bias, and is square."""
    hidden = c.integer("hidden_size")
    heads = c.integer("num_attention_heads")
    if c.integer("head_dim", null=hidden // heads) * heads != hidden:
        raise c.error("head_dim", f"must be hidden_size ({hidden}) over num_attention_heads")
    return grouped_decoder(c, replace(biased(c), out_bias=False))


@architecture("seed_oss", "SeedOssForCausalLM")
def seed_oss(c: Fields) -> Stack:
    """Seed-OSS: a bias flag of its own for the output projection."""
    style = replace(
        biased(c),
        out_bias=c.boolean("attention_out_bias"),
        dropout=c.number("residual_dropout"),
    )
    return grouped_decoder(c, style)


@architecture("cwm", "CwmForCausalLM")
def cwm(c: Fields) -> Stack:
    """Code World Model: every fourth layer sees all."""
    return grouped_decoder(
        c, Style(mlp_bias=c.boolean("mlp_bias")), windows=windows.first_full_every(4)
    )


@architecture("arcee", "ArceeForCausalLM")
def arcee(c: Fields) -> Stack:
    """Arcee: a plain MLP."""
    return grouped_decoder(c, biased(c, gated=False))


@architecture("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM")
def hunyuan_dense(c: Fields) -> Stack:
    """Hunyuan dense: norms on queries and keys by head."""
    return grouped_decoder(c, replace(biased(c, qk_norm="head"), mlp_bias=False))


@architecture("ernie4_5", "Ernie4_5ForCausalLM")
def ernie(c: Fields) -> Stack:
    """ERNIE 4.5 dense."""
    bias = c.boolean("use_bias")
    return grouped_decoder(c, Style(qkv_bias=bias, out_bias=bias, mlp_bias=bias))


@architecture("bitnet", "BitNetForCausalLM")
def bitnet(c: Fields) -> Stack:
    """BitNet b1.58 (arXiv 2504.12285): norms before both output projections."""
    inner = vector(c.integer("hidden_size")) + vector(c.integer("intermediate_size"))
    return grouped_decoder(c, replace(biased(c), mlp_bias=False, extra=inner, norms=2))


@architecture("apertus", "ApertusForCausalLM")
def apertus(c: Fields) -> Stack:
    """Apertus: a plain MLP whose activation has two learned numbers a layer."""
    style = replace(biased(c, qk_norm="head", gated=False), mlp_bias=False)
    if c.text("hidden_act") == "xielu":
        style = replace(style, extra=vector(2))
    return grouped_decoder(c, style)


@architecture("nanochat", "NanoChatForCausalLM")
def nanochat(c: Fields) -> Stack:
    """nanochat: norms without scale, a plain MLP."""
    style = replace(biased(c, gated=False), mlp_bias=False, norm_vectors=0)
    return grouped_decoder(c, style)


@architecture("mistral", "MistralForCausalLM")
def mistral(c: Fields) -> Stack:
    """Mistral 7B (arXiv 2310.06825)."""
    return grouped_decoder(c, Style(), windows=windows.everywhere)


@architecture("ministral", "MinistralForCausalLM")
def ministral(c: Fields) -> Stack:
    """Ministral: windows by layer."""
    return grouped_decoder(c, Style(), windows=windows.all_or_typed)


@architecture("ministral3", "Ministral3ForCausalLM")
def ministral3(c: Fields) -> Stack:
    """Ministral 3."""
    return grouped_decoder(c, Style(), windows=windows.everywhere)


@architecture("phi3", "Phi3ForCausalLM")
def phi3(c: Fields) -> Stack:
    """Phi-3 (arXiv 2404.14219) and Phi-4: fused matrices, Llama's shapes."""
    style = Style(dropout=c.number("resid_pdrop"))
    return grouped_decoder(c, style, windows=windows.everywhere)


@architecture("qwen2", "Qwen2ForCausalLM")
def qwen2(c: Fields) -> Stack:
    """Qwen2 (arXiv 2407.10671) and 2.5: biases on queries, keys and values alone."""
    return grouped_decoder(c, Style(qkv_bias=True), windows=windows.after_max_window_layers)


@architecture("qwen3", "Qwen3ForCausalLM")
def qwen3(c: Fields) -> Stack:
    """Qwen3 (arXiv 2505.09388): norms on queries and keys, by head."""
    style = replace(biased(c, qk_norm="head"), mlp_bias=False)
    return grouped_decoder(c, style, windows=windows.after_max_window_layers)


@architecture("glm", "GlmForCausalLM")
def glm(c: Fields) -> Stack:
    """GLM-4 9B: biases on queries, keys and values."""
    return grouped_decoder(c, Style(qkv_bias=c.boolean("attention_bias")))
