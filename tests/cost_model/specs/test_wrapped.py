"""Text towers of models that also see or hear, counted inside the whole class."""

from typing import Any

import pytest

from cost_model.specs import SpecError, from_config
from tests.cost_model.specs.meta import count_text, meta_model
from tests.cost_model.specs.tiny import TINY


def tower(name: str, like: str, **more: Any) -> dict[str, Any]:
    return {"model_type": name, **TINY[like][0], **more}


WHOLE: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", tower("qwen2_vl_text", "qwen2")),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", tower("qwen2_5_vl_text", "qwen2")),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", tower("qwen3_vl_text", "qwen3")),
    "qwen3_vl_moe": (
        "Qwen3VLMoeForConditionalGeneration",
        tower("qwen3_vl_moe_text", "qwen3_moe"),
    ),
    "qwen2_5_omni_thinker": (
        "Qwen2_5OmniThinkerForConditionalGeneration",
        tower("qwen2_5_omni_text", "qwen2"),
    ),
    "qwen3_omni_moe_thinker": (
        "Qwen3OmniMoeThinkerForConditionalGeneration",
        tower("qwen3_omni_moe_text", "qwen3_moe"),
    ),
    "qwen2_audio": ("Qwen2AudioForConditionalGeneration", tower("qwen2", "qwen2")),
    "glm4v": ("Glm4vForConditionalGeneration", tower("glm4v_text", "llama")),
    "glm4v_moe": ("Glm4vMoeForConditionalGeneration", tower("glm4v_moe_text", "glm4_moe")),
    "gemma3": ("Gemma3ForConditionalGeneration", tower("gemma3_text", "gemma3_text")),
    "gemma4": ("Gemma4ForConditionalGeneration", tower("gemma4_text", "gemma4_text")),
    "llama4": ("Llama4ForConditionalGeneration", tower("llama4_text", "llama4_text")),
    "mllama": ("MllamaForConditionalGeneration", tower("mllama_text_model", "mllama_text_model")),
    "llava": ("LlavaForConditionalGeneration", tower("llama", "llama")),
    "llava_next": ("LlavaNextForConditionalGeneration", tower("mistral", "mistral")),
    "llava_onevision": ("LlavaOnevisionForConditionalGeneration", tower("qwen2", "qwen2")),
    "mistral3": ("Mistral3ForConditionalGeneration", tower("mistral", "mistral")),
    "internvl": ("InternVLForConditionalGeneration", tower("qwen3", "qwen3")),
    "paligemma": ("PaliGemmaForConditionalGeneration", tower("gemma2", "gemma2")),
    "idefics3": ("Idefics3ForConditionalGeneration", tower("llama", "llama")),
    "kimi_k25": ("Kimi_K25ForConditionalGeneration", tower("deepseek_v3", "deepseek_v3")),
    "aria": ("AriaForConditionalGeneration", tower("aria_text", "aria_text")),
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("model_type", sorted(WHOLE))
def test_the_text_tower_is_counted_as_it_stands_in_the_whole(model_type: str, tied: bool) -> None:
    if tied and model_type == "qwen2_audio":
        pytest.skip("the class never ties")
    class_name, text = WHOLE[model_type]
    config = {
        "model_type": model_type,
        "architectures": [class_name],
        "text_config": {**text, "tie_word_embeddings": tied},
        "tie_word_embeddings": tied,
    }
    spec = from_config(config)
    assert spec.params == count_text(meta_model(config, class_name))
    assert spec.architecture == class_name
    assert f"only the text tower of {model_type} is counted" in spec.notes


def test_where_tower_and_outer_config_differ_on_tying_the_tower_is_believed() -> None:
    config = {
        "model_type": "llava",
        "text_config": tower("llama", "llama", tie_word_embeddings=False),
        "tie_word_embeddings": True,
    }
    spec = from_config(config)
    assert not spec.tied_embeddings
    assert any("text tower is believed" in note for note in spec.notes)


def test_a_whole_model_without_its_tower_is_refused() -> None:
    with pytest.raises(SpecError, match="fields of the text tower") as caught:
        from_config({"model_type": "llava", "vision_config": {}})
    assert caught.value.pointer == "/text_config"


def test_the_thinker_of_an_omni_model_is_found_below_it() -> None:
    inner = {
        "model_type": "qwen2_5_omni_thinker",
        "text_config": tower("qwen2_5_omni_text", "qwen2"),
    }
    config = {"model_type": "qwen2_5_omni", "thinker_config": inner}
    assert from_config(config).params == from_config({**inner}).params


def test_a_field_of_the_tower_is_named_by_its_place() -> None:
    config = {"model_type": "llava", "text_config": tower("llama", "llama", hidden_size="big")}
    with pytest.raises(SpecError) as caught:
        from_config(config)
    assert caught.value.pointer == "/text_config/hidden_size"
