"""Writes docs/models.md from the code: `python -m tests.cost_model.specs.docs`."""

from pathlib import Path

from pydantic import AliasChoices

from cost_model.catalogue import model, model_names, model_source
from cost_model.specs import ModelGeometry
from cost_model.specs.architectures import registered
from cost_model.specs.architectures.refused import KINDS
from cost_model.specs.architectures.wrapped import TEXT_TYPES

TARGET = Path(__file__).parents[3] / "docs" / "models.md"

INTRODUCTION = """# Models

A model is described in one of three ways:

- **a Hugging Face `config.json`**, inline, as it is published. Nothing is downloaded and no code
  of a checkpoint is run: geometry is read from the file alone.
- **a preset**, by name. A preset is a compact `config.json` with its source, read by the same code.
- **explicit geometry**: hidden size, layers and heads are enough. What is left out follows from
  `gated`: a gated MLP (the default) means Llama's shape, a plain one GPT-2's.

The parameter count equals that of the transformers class, tied weights once, buffers not counted.
Tests compare every architecture below with its class on the meta device, flag by flag.

What is read: both the keys of transformers 5 (`dtype`, `rope_parameters`, `layer_types`) and those
before (`torch_dtype`, `rope_scaling`, `sliding_window_pattern`); the names that a class maps
(`n_embd` for `hidden_size`). A field that is missing takes the default of its class, and a note
says so. `architectures` decides the head: causal language model, masked language model, classifier
of sequences or tokens, question answering, or none.

What is noted but not counted: layers for multi-token prediction, quantization of the checkpoint,
the vision or audio part of a model that has one. Such a model is counted by its text tower with
the output matrix over the vocabulary. Where the tower itself says whether that matrix is tied,
this holds; else the outer flag does; else the default of the tower's class.

A config that cannot be used is refused with the JSON pointer of the field, what it held, and what
would do.
"""


def first_line(text: str | None) -> str:
    line = (text or "").split("\n")[0].strip()
    return line.replace("|", "\\|")


def supported() -> list[str]:
    lines = [
        "## Supported architectures",
        "",
        "| `model_type` | class | what it is |",
        "|---|---|---|",
    ]
    for name, found in sorted(registered().items()):
        lines.append(f"| `{name}` | `{found.default_class}` | {first_line(found.read.__doc__)} |")
    return lines


def geometry() -> list[str]:
    lines = [
        "## Explicit geometry",
        "",
        "| field | or | default |",
        "|---|---|---|",
    ]
    for name, field in ModelGeometry.model_fields.items():
        alias = field.validation_alias
        choices = alias.choices[1:] if isinstance(alias, AliasChoices) else []
        others = ", ".join(f"`{choice}`" for choice in choices)
        default = "required" if field.is_required() else f"`{field.default}`"
        lines.append(f"| `{name}` | {others} | {default} |")
    lines += ["", "`None` follows from `gated`, or from the other fields."]
    return lines


def towers() -> list[str]:
    names = ", ".join(f"`{name}`" for name in sorted(TEXT_TYPES))
    return [
        "## Models with a text tower",
        "",
        f"Counted by their text tower: {names}. Others are, too, where `text_config` (or",
        "`language_config`, `llm_config`, `thinker_config`) holds a decoder of the table above.",
    ]


def refused() -> list[str]:
    lines = ["## Refused, with the reason", ""]
    for why, names in KINDS.items():
        lines.append(f"- {why}: {', '.join(f'`{name}`' for name in sorted(names.split()))}")
    lines += [
        "",
        "Everything else that the tables above do not name is refused as not supported.",
    ]
    return lines


def size(params: int) -> str:
    return f"{params / 1e9:,.2f} B" if params >= 1e9 else f"{params / 1e6:,.0f} M"


TIED_FLAN = (
    "Flan-T5 is counted as transformers 5 builds it, with the output tied to the token table: "
    "`flan-t5-xl` has 2.784 B parameters; the published checkpoint, with a matrix of its own for "
    "the output, has 2.850 B."
)


def presets() -> list[str]:
    lines = [
        "## Presets",
        "",
        "| name | parameters | | layers | hidden | source |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for name in model_names():
        spec = model(name)
        lines.append(
            f"| `{name}` | {spec.params:,} | {size(spec.params)} | {spec.layers} | {spec.hidden} "
            f"| {model_source(name)} |"
        )
    lines += ["", TIED_FLAN]
    return lines


def page() -> str:
    sections = (supported(), towers(), refused(), geometry(), presets())
    parts = ["\n".join(part) for part in sections]
    note = "This page is printed by `python -m tests.cost_model.specs.docs`; a test compares.\n"
    return "\n".join([INTRODUCTION, *(part + "\n" for part in parts), note])


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(page(), "utf-8")
    print(f"{TARGET}: {len(registered())} architectures, {len(model_names())} presets")
