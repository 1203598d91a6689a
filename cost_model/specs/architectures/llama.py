"""Llama and the dense decoders that differ from it in biases, norms and windows."""

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.grouped import Style, grouped_decoder
from cost_model.specs.architectures.stack import Stack, architecture


@architecture("llama", "LlamaForCausalLM")
def llama(c: Fields) -> Stack:
    """Llama 1 to 3 (arXiv 2302.13971, 2307.09288, 2407.21783)."""
    bias = c.boolean("attention_bias")
    return grouped_decoder(c, Style(qkv_bias=bias, out_bias=bias, mlp_bias=c.boolean("mlp_bias")))


@architecture("mistral", "MistralForCausalLM")
def mistral(c: Fields) -> Stack:
    """Mistral 7B (arXiv 2310.06825)."""
    return grouped_decoder(c, Style(), windows=windows.everywhere)


@architecture("qwen2", "Qwen2ForCausalLM")
def qwen2(c: Fields) -> Stack:
    """Qwen2 (arXiv 2407.10671) and 2.5: biases on queries, keys and values alone."""
    return grouped_decoder(c, Style(qkv_bias=True), windows=windows.after_max_window_layers)


@architecture("qwen3", "Qwen3ForCausalLM")
def qwen3(c: Fields) -> Stack:
    """Qwen3 (arXiv 2505.09388): norms on queries and keys, by head."""
    bias = c.boolean("attention_bias")
    style = Style(qkv_bias=bias, out_bias=bias, qk_norm="head")
    return grouped_decoder(c, style, windows=windows.after_max_window_layers)
