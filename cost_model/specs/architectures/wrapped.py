"""Text towers of models that also see or hear: the text part is read, the rest is left out."""

from collections.abc import Callable
from typing import Final

from cost_model.specs.architectures import llama, mixture
from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.grouped import (
    Style,
    grouped_attention,
    grouped_decoder,
    grouped_layer,
    key_value_heads,
)
from cost_model.specs.architectures.stack import Stack, architecture
from cost_model.specs.architectures.weights import (
    Weights,
    attention_weights,
    layer,
    mlp_weights,
    vector,
)
from cost_model.specs.model import Attention, Layer, Mlp

TEXT_KEYS: Final = ("text_config", "language_config", "llm_config", "thinker_config")
"""Where a config keeps its text tower."""

TEXT_TYPES: Final = {
    "aria": "aria_text",
    "aya_vision": "cohere2",
    "blip-2": "opt",
    "cohere2_vision": "cohere2",
    "deepseek_vl": "llama",
    "deepseek_vl_hybrid": "llama",
    "exaone4_5": "exaone4",
    "fast_vlm": "qwen2",
    "fuyu": "persimmon",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "glm4v": "glm4v_text",
    "glm46v": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text",
    "got_ocr2": "qwen2",
    "granite_speech": "granite",
    "idefics2": "mistral",
    "idefics3": "llama",
    "instructblip": "opt",
    "internvl": "qwen2",
    "janus": "llama",
    "kimi_k25": "deepseek_v3",
    "kimi_vl": "deepseek_v3",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "mistral3": "mistral",
    "mllama": "mllama_text_model",
    "ovis2": "qwen2",
    "paligemma": "gemma",
    "perception_lm": "llama",
    "qwen2_5_omni": "qwen2_5_omni_text",
    "qwen2_5_omni_thinker": "qwen2_5_omni_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_audio": "qwen2",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_omni_moe": "qwen3_omni_moe_text",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "shieldgemma2": "gemma3_text",
    "smolvlm": "llama",
    "video_llama_3": "qwen2",
    "video_llava": "llama",
    "vipllava": "llama",
    "voxtral": "llama",
}
"""Models with a text tower, and its model type where the tower does not name one."""

OUTER_UNTIED: Final = (
    "qwen2_5_omni",
    "qwen2_5_omni_thinker",
    "qwen3_omni_moe",
    "qwen3_omni_moe_thinker",
    "qwen3_vl_moe",
)
"""Models that have an output matrix of their own although their tower's class would tie it."""

FLAT: Final = ("qwen2_vl", "qwen2_5_vl", "fuyu")
"""Models whose older files hold the text tower's fields at the top."""

_SAME: Final[tuple[tuple[str, str, Callable[[Fields], Stack]], ...]] = (
    ("qwen2_vl_text", "Qwen2VLForConditionalGeneration", llama.qwen2),
    ("qwen2_5_vl_text", "Qwen2_5_VLForConditionalGeneration", llama.qwen2),
    ("qwen2_5_omni_text", "Qwen2_5OmniThinkerForConditionalGeneration", llama.qwen2),
    ("qwen3_vl_text", "Qwen3VLForConditionalGeneration", llama.qwen3),
    ("qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration", mixture.qwen3_moe),
    ("qwen3_omni_moe_text", "Qwen3OmniMoeThinkerForConditionalGeneration", mixture.qwen3_moe),
)
for _model_type, _class, _reader in _SAME:
    architecture(_model_type, _class)(_reader)


@architecture("glm4v_text", "Glm4vForConditionalGeneration")
def glm4v_text(c: Fields) -> Stack:
    """GLM-4.1V and 4.6V (arXiv 2507.01006): GLM-4 with biases on queries, keys and values."""
    return grouped_decoder(c, Style(qkv_bias=True, norms=4))


@architecture("glm4v_moe_text", "Glm4vMoeForConditionalGeneration")
def glm4v_moe_text(c: Fields) -> Stack:
    """GLM-4.5V: GLM-4.5 without norms on queries and keys."""
    style = Style(qkv_bias=c.boolean("attention_bias"))
    return grouped_decoder(c, style, experts=mixture.routed_and_shared)


@architecture("mllama_text_model", "MllamaForCausalLM")
def mllama_text(c: Fields) -> Stack:
    """Llama 3.2 Vision (arXiv 2407.21783, section 7): some layers attend to the image alone.

    Those have a norm for queries and keys, and a gate on each of their two sub-layers. The token
    table has eight rows more than the output matrix.
    """
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    listed = c.integers("cross_attention_layers")
    crossing = set((3, 8, 13, 18, 23, 28, 33, 38) if listed is None else listed)
    mlp = Mlp(intermediate=c.integer("intermediate_size"), gated=True)
    own = grouped_attention(c, hidden=hidden, qkv_bias=False, out_bias=False)
    plain = grouped_layer(Style(), hidden, own, mlp)
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=[_crossing(c, hidden, mlp) if i in crossing else plain for i in range(c.layers())],
        embedding_params=(vocab + 8) * hidden,
        final_params=hidden,
        tied=False,  # the two matrices differ in their rows
        max_seq_len=c.optional_integer("max_position_embeddings"),
        activation=c.text("hidden_act"),
    )


def _crossing(c: Fields, hidden: int, mlp: Mlp) -> Layer:
    heads = c.integer("num_attention_heads")
    width = hidden // heads
    cross = Attention(
        heads=heads,
        kv_heads=key_value_heads(c, heads),
        head_dim=width,
        value_head_dim=width,
        causal=False,
    )
    weights = attention_weights(hidden, cross) + mlp_weights(hidden, mlp)
    weights += vector(2 * hidden + 2 * width) + Weights(replicated=2)
    return layer(weights, norms=2, mlp=mlp, cross_attention=cross)
