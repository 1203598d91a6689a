"""Real config.json files, presets and class defaults, against transformers on the meta device."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from cost_model.catalogue import model, model_config, model_names, model_source
from cost_model.specs import SpecError, from_config
from cost_model.specs.architectures import registered
from cost_model.specs.architectures.read import class_defaults
from tests.cost_model.specs import class_defaults as generator
from tests.cost_model.specs.meta import count, count_text, meta_model

FOLDER = Path(__file__).parents[4] / "shared" / "cases" / "hf_configs"
FILES = sorted(FOLDER.glob("*.json")) if FOLDER.is_dir() else []

REFUSED = {
    "mamba": "state-space",
    "jamba": "hybrid",
    "qwen3_5": "hybrid",
    "qwen3_5_moe": "hybrid",
    "nemotron_h": "hybrid",
    "vit": "vision",
}
COUNTED_OTHERWISE = {
    # The class comes with the checkpoint; the count is that of its weight index on the hub.
    "nemotron-nas": 49_867_145_216,
    # transformers ties by the outer flag; the tower's own says untied, as the weights are.
    "llava": 6_738_415_616,
}


@pytest.mark.skipif(not FILES, reason="the folder of real configs is not beside the repository")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_real_config_is_counted_exactly_or_refused_by_name(path: Path) -> None:
    config: dict[str, Any] = json.loads(path.read_text("utf-8"))
    model_type, class_name = config["model_type"], config["architectures"][0]
    if model_type in REFUSED:
        with pytest.raises(SpecError, match=f"{class_name} is a {REFUSED[model_type]}") as caught:
            from_config(config)
        assert caught.value.pointer == "/model_type"
        assert "llama" in caught.value.wanted
        return
    spec = from_config(config)
    if model_type in COUNTED_OTHERWISE:
        assert spec.params == COUNTED_OTHERWISE[model_type]
        return
    whole = meta_model(config, class_name)
    if "text_config" in config:
        assert spec.params == count_text(whole)
        assert f"only the text tower of {model_type} is counted" in spec.notes
    else:
        assert spec.params == count(whole)


KNOWN = {
    # arXiv 2307.09288 and the weight indices of the published checkpoints.
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2-9b": 9_241_705_984,
    "phi-4": 14_659_507_200,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "bloom-176b": 176_247_271_424,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "falcon-7b": 6_921_720_704,
    "dbrx": 131_596_523_520,
    "olmoe-1b-7b": 6_919_161_856,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
}
REQUIRED = {
    *("llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3.1-8b", "llama-3.1-70b"),
    *("llama-3.1-405b", "mistral-7b", "mixtral-8x7b", "mixtral-8x22b", "qwen2.5-7b"),
    *("qwen2.5-32b", "qwen2.5-72b", "qwen3-30b-a3b", "deepseek-v3", "gpt-3-175b"),
    *("gpt-neox-20b", "opt-30b", "bloom-176b", "bert-large"),
}


def test_the_catalogue_has_the_models_that_users_name() -> None:
    assert set(model_names()) >= REQUIRED
    assert all(model_source(name) for name in model_names())


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no model named 'llama-9'; known: .*llama-2-13b"):
        model("llama-9")


def test_a_preset_answers_to_the_repository_it_was_published_in() -> None:
    assert model("meta-llama/Llama-2-7b-hf").params == model("llama-2-7b").params


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_preset_has_the_published_number_of_parameters(name: str) -> None:
    assert model(name).params == KNOWN[name]


def test_llama_2_70b_has_80_layers() -> None:
    assert model("llama-2-70b").layers == 80


@pytest.mark.parametrize("name", model_names())
def test_a_preset_counts_as_its_class_does(name: str) -> None:
    config = model_config(name)
    assert model(name).params == count(meta_model(config, config["architectures"][0]))


def test_the_file_of_class_defaults_is_that_of_the_installed_transformers() -> None:
    assert class_defaults() == generator.class_defaults()


BROKEN_BARE = {
    "dbrx": "its class fails without rope_theta",
    "deepseek_v2": "num_experts_per_tok has no default",
    "dots1": "n_routed_experts has no default",
    "glm4_moe": "its default heads do not divide its hidden size",
    "granitemoehybrid": "its default layers are Mamba's",
    "hunyuan_v1_dense": "its class fails without head_dim",
    "hunyuan_v1_moe": "its class fails without head_dim",
    "ministral": "its class fails without head_dim",
    "nemotron": "its class fails without num_key_value_heads",
}


@pytest.mark.parametrize("model_type", sorted(set(registered()) - set(BROKEN_BARE)))
def test_an_empty_config_means_the_defaults_of_its_class(model_type: str) -> None:
    class_name = registered()[model_type].default_class
    if model_type not in CONFIG_MAPPING or not hasattr(transformers, class_name):
        pytest.skip("the class comes with the checkpoint")
    if model_type.endswith("_text") and "ForConditionalGeneration" in class_name:
        pytest.skip("the text tower has no class of its own")
    spec = from_config({"model_type": model_type})
    assert spec.params == count(meta_model({"model_type": model_type}, class_name))
    assert any(note.startswith("not in the config, taken from its class") for note in spec.notes)


def test_fields_may_go_under_the_names_that_the_class_maps() -> None:
    common = {"model_type": "gpt2", "vocab_size": 100}
    assert (
        from_config(common | {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32}).params
        == from_config(
            common
            | {
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "max_position_embeddings": 32,
            }
        ).params
    )


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("torch_dtype", "bfloat16", "bf16"),
        ("dtype", "float16", "fp16"),
        ("torch_dtype", "torch.float32", "fp32"),
        ("torch_dtype", None, None),
        ("dtype", "int8", None),
    ],
)
def test_the_training_precision_comes_from_either_key(
    key: str, value: object, expected: str | None
) -> None:
    assert from_config({"model_type": "llama", key: value}).trained_in == expected


def test_a_model_type_of_remote_code_is_read_by_its_class() -> None:
    config = model_config("kimi-k2") | {
        "model_type": "kimi_k2",
        "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    }
    assert from_config(config).params == model("kimi-k2").params


def test_older_vision_configs_hold_the_text_tower_at_the_top() -> None:
    text = model_config("qwen2.5-7b")
    flat = text | {
        "model_type": "qwen2_5_vl",
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "vision_config": {"depth": 32},
    }
    spec = from_config(flat)
    assert spec.params == model("qwen2.5-7b").params
    assert "only the text tower of qwen2_5_vl is counted" in spec.notes


def test_a_text_tower_inherits_the_outer_tie_where_it_has_none() -> None:
    text = {k: v for k, v in model_config("qwen3-4b").items() if k != "tie_word_embeddings"}
    whole = {"model_type": "qwen3_vl", "text_config": text | {"model_type": "qwen3_vl_text"}}
    tied = from_config(whole | {"tie_word_embeddings": True})
    untied = from_config(whole | {"tie_word_embeddings": False})
    assert untied.params - tied.params == 151_936 * 2560
