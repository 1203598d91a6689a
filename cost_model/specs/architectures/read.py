"""From a config.json to a ModelSpec: finds the architecture, reads it, puts the head on."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

from cost_model.specs.architectures.fields import Fields, pointer_to
from cost_model.specs.architectures.heads import head
from cost_model.specs.architectures.kinds import kinds_of
from cost_model.specs.architectures.refused import reason
from cost_model.specs.architectures.stack import Architecture, registered
from cost_model.specs.architectures.wrapped import FLAT, OUTER_UNTIED, TEXT_KEYS, TEXT_TYPES
from cost_model.specs.errors import SpecError
from cost_model.specs.model import ModelSpec

_DTYPES: dict[str, Literal["bf16", "fp16", "fp32"]] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
}
_LONGEST_NAME = 200


@cache
def class_defaults() -> Mapping[str, Mapping[str, Mapping[str, object]]]:
    """Defaults and aliases of each configuration class, by model type.

    Read from the data file beside this module, which is made from the classes themselves.
    """
    text = (files("cost_model.specs.architectures") / "class_defaults.json").read_text("utf-8")
    found: Mapping[str, Mapping[str, Mapping[str, object]]] = json.loads(text)
    return found


def from_config(config: Mapping[str, object]) -> ModelSpec:
    """Reads a Hugging Face config.json.

    The parameter count equals that of the transformers class that the config names, tied weights
    once; of models that also see or hear, that of the text tower with its output matrix. Raises
    SpecError, with the JSON pointer of the field, for what is malformed or not supported.
    """
    document = Fields(config)
    model_type = document.text("model_type")
    given_class = _class_name(document)
    _refuse(document, model_type, given_class)
    text, notes = _text_tower(document, model_type)
    found = _architecture(text, given_class)
    c = _with_defaults(text, found.model_type)
    if c.value("per_layer_config") and found.model_type != "gemma4_text":
        raise c.error("per_layer_config", "must be absent: layers may differ in Gemma 4 alone")
    class_name = given_class or found.default_class
    stack = found.read(c)
    last = head(c, stack, class_name)
    if last is None:
        wanted = (
            f"must be a class of {found.model_type} whose head is supported, "
            f"such as {found.default_class}"
        )
        raise SpecError("/architectures/0", class_name, wanted)
    kinds, pattern = kinds_of(stack.layers)
    return ModelSpec(
        name=_name(document),
        architecture=class_name,
        family=stack.family,
        hidden=stack.hidden,
        vocab=stack.vocab,
        max_seq_len=stack.max_seq_len,
        kinds=kinds,
        layer_pattern=pattern,
        encoder_layers=stack.encoder_layers,
        norm=stack.norm,
        position=stack.position,
        activation=stack.activation,
        tied_embeddings=last.tied,
        embedding_params=stack.embedding_params,
        head_params=last.params,
        head_matmul_params=last.matmul,
        dropout=stack.dropout,
        trained_in=_trained_in(document) or _trained_in(text),
        notes=notes + _notes(document) + _filled_in(c) + stack.notes,
    )


def _refuse(document: Fields, model_type: str, class_name: str | None) -> None:
    """Raises for what is known not to be supported."""
    diffusers = document.value("_class_name")
    if isinstance(diffusers, str):
        kind = reason("", diffusers) or "a model of another library"
        raise SpecError("/_class_name", diffusers, f"{diffusers} is {kind}; {_supported()}")
    why = reason(model_type, class_name or "")
    if why is not None:
        wanted = f"{class_name or model_type} is {why}; {_supported()}"
        if model_type:
            raise SpecError("/model_type", model_type, wanted)
        raise SpecError("/architectures/0", class_name, wanted)


def _supported() -> str:
    names = ", ".join(sorted(registered()))
    return f"supported are decoders, mixtures of experts, encoders and encoder-decoders: {names}"


def _text_tower(document: Fields, model_type: str) -> tuple[Fields, tuple[str, ...]]:
    """The fields of the text tower, and a note where it is only part of the model."""
    key = next((k for k in TEXT_KEYS if document.value(k) is not None), None)
    if model_type in registered() or (key is None and model_type not in TEXT_TYPES):
        return document, ()
    if key is None and model_type in FLAT:
        tower = Fields({**document.data, "model_type": TEXT_TYPES[model_type]}, document.pointer)
    elif key is None:
        wanted = "must be an object with the fields of the text tower"
        raise SpecError(pointer_to(document.pointer, TEXT_KEYS[0]), None, wanted)
    else:
        nested = document.sub(key)
        if key == "thinker_config" and nested.value("text_config") is not None:
            nested = nested.sub("text_config")
        tower = Fields(_inherit(document, nested.data, model_type), nested.pointer)
    _refuse_tower(tower, model_type)
    notes = [f"only the text tower of {model_type or 'the model'} is counted"]
    outer, inner = (fields.value("tie_word_embeddings") for fields in (document, tower))
    if isinstance(outer, bool) and outer != inner:
        notes.append("on tied embeddings the text tower is believed, not the outer config")
    return tower, tuple(notes)


def _inherit(document: Fields, text: Mapping[str, object], model_type: str) -> Mapping[str, object]:
    """The tower's fields; where they are silent, the outer tie and the usual type of tower."""
    outer: dict[str, object] = {}
    if document.value("tie_word_embeddings") is not None:
        outer["tie_word_embeddings"] = document.boolean("tie_word_embeddings")
    elif model_type in OUTER_UNTIED:
        outer["tie_word_embeddings"] = False
    if model_type in TEXT_TYPES:
        outer["model_type"] = TEXT_TYPES[model_type]
    return {**text, **{k: v for k, v in outer.items() if text.get(k) is None}}


def _refuse_tower(tower: Fields, model_type: str) -> None:
    inner = tower.text("model_type")
    kind = reason(inner, "")
    if kind is not None:
        wanted = f"{model_type} has a text tower that is {kind}; {_supported()}"
        raise SpecError(pointer_to(tower.pointer, "model_type"), inner, wanted)
    found = registered().get(inner)
    if found is not None and model_type not in TEXT_TYPES and _encodes(found):
        wanted = f"{model_type} is no language model; {_supported()}"
        raise SpecError("/model_type", model_type, wanted)


def _encodes(found: Architecture) -> bool:
    return not found.default_class.endswith(("ForCausalLM", "LMHeadModel"))


def _architecture(c: Fields, class_name: str | None) -> Architecture:
    """By `model_type`; where that is unknown, by the class that the config names."""
    table = registered()
    model_type = c.text("model_type")
    if model_type in table:
        return table[model_type]
    for found in table.values():
        if found.default_class == class_name:
            return found
    named = "" if class_name is None else f"{class_name} is not supported; "
    raise SpecError(
        pointer_to(c.pointer, "model_type"), c.value("model_type"), named + _supported()
    )


def _with_defaults(c: Fields, model_type: str) -> Fields:
    """The fields with the defaults and the aliases of their class behind them."""
    known = class_defaults().get(model_type, {})
    aliases = {alias: str(name) for alias, name in known.get("aliases", {}).items()}
    return Fields(c.data, c.pointer, known.get("defaults"), aliases)


def _class_name(document: Fields) -> str | None:
    names = document.texts("architectures")
    return names[0] if names else None


def _name(document: Fields) -> str:
    name = document.value("_name_or_path")
    if isinstance(name, str) and name:
        return name[:_LONGEST_NAME]
    return document.text("model_type", null="model")[:_LONGEST_NAME] or "model"


def _trained_in(c: Fields) -> Literal["bf16", "fp16", "fp32"] | None:
    for name in ("dtype", "torch_dtype"):
        value = c.data.get(name)
        if isinstance(value, str):
            return _DTYPES.get(value.removeprefix("torch."))
    return None


def _notes(document: Fields) -> tuple[str, ...]:
    """What the config says that the count leaves out."""
    notes = []
    if document.value("quantization_config") is not None:
        notes.append("the checkpoint is quantized; training is predicted for unquantized weights")
    for name in ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"):
        value = document.value(name)
        if isinstance(value, int) and value > 0:
            notes.append(f"the multi-token prediction layers ({name}) are not counted")
            break
    return tuple(notes)


def _filled_in(c: Fields) -> tuple[str, ...]:
    """Geometry that the config leaves out and its class fills in."""
    used = c.defaults_used()
    if not used:
        return ()
    filled = ", ".join(f"{name} = {value}" for name, value in used)
    return (f"not in the config, taken from its class: {filled}",)
