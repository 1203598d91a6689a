"""Writes the defaults of the configuration classes beside the readers.

Run as `python -m tests.cost_model.specs.class_defaults` after a change of what is read.
Only what the readers read is kept. The source is the installed transformers; a test compares.
"""

import dataclasses
import json
import re
from pathlib import Path

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import cost_model.specs.architectures as package
from cost_model.specs.architectures import registered

FOLDER = Path(package.__file__).parent
TARGET = FOLDER / "class_defaults.json"


def names_read() -> set[str]:
    """Every string in the readers that could be the name of a field."""
    text = "".join(path.read_text("utf-8") for path in sorted(FOLDER.glob("*.py")))
    return set(re.findall(r'"([a-z_][a-z_0-9]*)"', text, re.IGNORECASE))


def plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, dict))


def class_defaults() -> dict[str, dict[str, dict[str, object]]]:
    names = names_read()
    out: dict[str, dict[str, dict[str, object]]] = {}
    for model_type in sorted(registered()):
        if model_type not in CONFIG_MAPPING:
            continue
        cls = CONFIG_MAPPING[model_type]
        defaults = {}
        for field in dataclasses.fields(cls):
            value = field.default
            if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            if isinstance(value, tuple):
                value = list(value)
            if field.name in names and plain(value) and value is not None:
                defaults[field.name] = value
        aliases = {k: v for k, v in (cls.attribute_map or {}).items() if {k, v} & names}
        out[model_type] = {"defaults": dict(sorted(defaults.items()))}
        if aliases:
            out[model_type]["aliases"] = dict(sorted(aliases.items()))
    return out


if __name__ == "__main__":
    TARGET.write_text(json.dumps(class_defaults(), indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"{TARGET}: {len(class_defaults())} classes")
