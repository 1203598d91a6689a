"""From a config.json to a ModelSpec: finds the architecture, reads it, puts the head on."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

from cost_model.specs.architectures.fields import Fields
from cost_model.specs.architectures.heads import head
from cost_model.specs.architectures.kinds import kinds_of
from cost_model.specs.architectures.stack import Architecture, registered
from cost_model.specs.errors import SpecError
from cost_model.specs.model import ModelSpec

_DTYPES: dict[str, Literal["bf16", "fp16", "fp32"]] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
}


@cache
def class_defaults() -> Mapping[str, Mapping[str, Mapping[str, object]]]:
    """Defaults and aliases of each configuration class, by model type."""
    text = (files("cost_model.specs.architectures") / "class_defaults.json").read_text("utf-8")
    found: Mapping[str, Mapping[str, Mapping[str, object]]] = json.loads(text)
    return found


def fields_of(data: object, pointer: str, model_type: str) -> Fields:
    """The config as typed fields, with the defaults of its class behind them."""
    known = class_defaults().get(model_type, {})
    aliases = {alias: str(name) for alias, name in known.get("aliases", {}).items()}
    return Fields(data, pointer, known.get("defaults"), aliases)


def from_config(config: Mapping[str, object]) -> ModelSpec:
    """Reads a Hugging Face config.json.

    The parameter count equals that of the transformers class that the config names, tied weights
    once. Raises SpecError, with the JSON pointer of the field, for what is malformed or not
    supported.
    """
    document = Fields(config)
    found = _find(document)
    c = fields_of(config, "", found.model_type)
    class_name = _class_name(document) or found.default_class
    stack = found.read(c)
    last = head(c, stack, class_name)
    if last is None:
        wanted = f"must be a class for training {found.model_type}, such as {found.default_class}"
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
        dropout=min(stack.dropout, 1.0),
        trained_in=_trained_in(c),
        notes=_notes(document) + stack.notes,
    )


def _find(document: Fields) -> Architecture:
    model_type = document.text("model_type")
    table = registered()
    if model_type in table:
        return table[model_type]
    if not model_type:
        raise SpecError("/model_type", document.value("model_type"), _supported())
    raise SpecError("/model_type", model_type, _supported())


def _supported() -> str:
    return f"must be a supported architecture: {', '.join(sorted(registered()))}"


def _class_name(document: Fields) -> str | None:
    names = document.texts("architectures")
    return names[0] if names else None


def _name(document: Fields) -> str:
    name = document.value("_name_or_path")
    if isinstance(name, str) and name:
        return name
    return document.text("model_type", null="model")


def _trained_in(c: Fields) -> Literal["bf16", "fp16", "fp32"] | None:
    for name in ("dtype", "torch_dtype"):
        value = c.data.get(name)
        if isinstance(value, str):
            return _DTYPES.get(value.removeprefix("torch."))
    return None


def _notes(document: Fields) -> tuple[str, ...]:
    return ()
