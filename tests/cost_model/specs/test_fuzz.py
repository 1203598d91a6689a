"""Whatever a config holds, the answer is a model or an error that names the field."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cost_model.catalogue import model_config, model_names
from cost_model.specs import ModelSpec, SpecError, from_config
from tests.cost_model.specs.tiny import TINY

BASES: list[dict[str, Any]] = [
    *({"model_type": name, **sizes} for name, (sizes, _) in sorted(TINY.items())),
    *(model_config(name) for name in model_names()),
    {
        "model_type": "qwen3_vl",
        "text_config": {"model_type": "qwen3_vl_text", **TINY["qwen3"][0]},
        "vision_config": {"depth": 3},
    },
    {
        "model_type": "nemotron-nas",
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "vocab_size": 97,
        "block_configs": [
            {
                "attention": {"n_heads_in_group": 3, "no_op": False},
                "ffn": {"ffn_mult": 2.0, "no_op": False},
            },
            {"attention": {"no_op": True}, "ffn": {"no_op": True}},
        ],
    },
]
MODEL_TYPES = st.sampled_from(sorted({str(base["model_type"]) for base in BASES}))
JUNK = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([7, 1000, 10**6, 2**31, 10**12, 10**30])
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["sliding_attention", "linear_attention", "mamba", "gated-gelu", "a-b-c"])
    | st.lists(st.integers(-1, 5) | st.text(max_size=3), max_size=5)
    | st.dictionaries(st.text(max_size=3), st.integers(-1, 5), max_size=3)
)


def places(config: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every member of a document."""
    items = config.items() if isinstance(config, dict) else enumerate(config)
    out = []
    for key, value in items:
        out.append((*path, key))
        if isinstance(value, (dict, list)):
            out += places(value, (*path, key))
    return out


def put(config: Any, path: tuple[Any, ...], value: Any, *, drop: bool) -> None:
    for key in path[:-1]:
        config = config[key]
    if drop:
        del config[path[-1]]
    else:
        config[path[-1]] = value


def answer(config: Any) -> ModelSpec | SpecError:
    try:
        return from_config(config)
    except SpecError as error:
        return error


def resolve(document: Any, pointer: str) -> Any:
    """Follows a JSON pointer; None where the field is absent."""
    for escaped in pointer.split("/")[1:]:
        part = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list):
            document = document[int(part)]
        elif isinstance(document, dict):
            document = document.get(part)
        else:
            return None
    return document


def check(config: Any) -> None:
    found = answer(config)
    if isinstance(found, ModelSpec):
        assert found.params > 0
        assert sum(found.layer_counts) == found.layers
        return
    assert found.pointer == "" or found.pointer.startswith("/")
    assert found.wanted
    held = resolve(config, found.pointer)
    assert held is None or repr(held) == repr(found.given)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(base=st.sampled_from(BASES), data=st.data())
def test_a_changed_config_is_read_or_refused_with_the_field(
    base: dict[str, Any], data: st.DataObject
) -> None:
    config = json.loads(json.dumps(base))
    for _ in range(data.draw(st.integers(1, 3))):
        open_places = places(config)
        if not open_places:
            break
        path = data.draw(st.sampled_from(open_places))
        put(config, path, data.draw(JUNK), drop=data.draw(st.booleans()))
    check(config)


@settings(max_examples=200, deadline=None)
@given(model_type=MODEL_TYPES, base=st.sampled_from(BASES))
def test_the_fields_of_one_model_under_the_type_of_another(
    model_type: str, base: dict[str, Any]
) -> None:
    check({**base, "model_type": model_type})


@settings(max_examples=200, deadline=None)
@given(JUNK | st.dictionaries(st.text(max_size=8), JUNK, max_size=4))
def test_anything_at_all_is_refused_politely(config: Any) -> None:
    check(config)


@pytest.mark.parametrize(
    ("change", "pointer", "wanted"),
    [
        ({"num_hidden_layers": "32"}, "/num_hidden_layers", "integer of at least 1"),
        ({"num_hidden_layers": 0}, "/num_hidden_layers", "integer of at least 1"),
        ({"num_hidden_layers": 10**9}, "/num_hidden_layers", "at most 10000"),
        ({"hidden_size": -4}, "/hidden_size", "integer of at least 1"),
        ({"hidden_size": True}, "/hidden_size", "integer of at least 1"),
        ({"num_attention_heads": 33}, "/num_attention_heads", "must divide hidden_size"),
        ({"num_key_value_heads": 5}, "/num_key_value_heads", "must divide"),
        ({"attention_bias": "no"}, "/attention_bias", "true or false"),
        ({"model_type": "lamma", "architectures": None}, "/model_type", "supported"),
        ({"model_type": None}, None, ""),
        ({"architectures": ["LlamaForImageClassification"]}, "/architectures/0", "LlamaForCausal"),
        ({"architectures": "LlamaForCausalLM"}, "/architectures", "list of strings"),
        ({"architectures": [7]}, "/architectures/0", "must be a string"),
    ],
)
def test_an_error_names_the_field_and_what_would_do(
    change: dict[str, Any], pointer: str | None, wanted: str
) -> None:
    config = model_config("llama-2-7b") | change
    if pointer is None:
        assert from_config(config).params == 6_738_415_616  # the class is named
        return
    with pytest.raises(SpecError) as caught:
        from_config(config)
    assert caught.value.pointer == pointer
    assert caught.value.given == resolve(config, pointer)
    assert wanted in caught.value.wanted


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"model_type": "rwkv", "architectures": ["RwkvForCausalLM"]},
            "RwkvForCausalLM is a state",
        ),
        ({"model_type": "mamba2"}, "mamba2 is a state-space"),
        ({"model_type": "zamba2", "architectures": ["Zamba2ForCausalLM"]}, "is a hybrid"),
        ({"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"]}, "is a hybrid"),
        ({"model_type": "whisper"}, "whisper is a speech or audio model"),
        ({"model_type": "clip"}, "clip is a model that matches two encoders"),
        ({"_class_name": "UNet2DConditionModel"}, "UNet2DConditionModel is a diffusion model"),
        ({"_class_name": "FluxPipeline"}, "a model of another library"),
        ({"model_type": "grounding-dino", "text_config": {"model_type": "bert"}}, "no language"),
        ({"architectures": ["NewThingForCausalLM"]}, "NewThingForCausalLM is not supported"),
        ({}, "supported are decoders"),
        (
            {"model_type": "llava", "text_config": {"model_type": "mamba"}},
            "llava has a text tower that is a state-space",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name_with_the_reason(
    config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SpecError, match=reason) as caught:
        from_config(config)
    assert "llama" in caught.value.wanted


def test_linear_attention_in_a_list_of_layers_is_refused_at_its_place() -> None:
    config = model_config("qwen3-8b") | {
        "layer_types": ["full_attention"] * 35 + ["linear_attention"]
    }
    with pytest.raises(SpecError, match="other kinds of layer are not supported") as caught:
        from_config(config)
    assert caught.value.pointer == "/layer_types/35"
