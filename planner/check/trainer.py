"""A config beside the TrainingArguments that go with it: HF Trainer refuses every difference."""

from collections.abc import Mapping
from typing import Any

from planner.check import edit
from planner.check.report import Finding, Patch
from planner.check.situation import Situation
from planner.check.values import resolvers

OTHER_NAMES = {
    "per_device_train_batch_size": ("micro_batch_size", "train_micro_batch_size_per_gpu"),
    "learning_rate": ("lr",),
    "warmup_steps": ("warmup_num_steps",),
}
SHORT = {
    "lr": ("optimizer", "params", "lr"),
    "warmup_max_lr": ("scheduler", "params", "warmup_max_lr"),
    "warmup_num_steps": ("scheduler", "params", "warmup_num_steps"),
}


def check(document: dict[str, Any], situation: Situation) -> list[Finding]:
    """One finding for each key that differs from its argument."""
    arguments = situation.trainer
    if arguments is None:
        return []
    found: list[Finding] = []
    for dotted, row in resolvers().items():
        path = tuple(dotted.split("."))
        name = row.get("argument")
        if not name:
            continue
        value = edit.get(document, path, edit.ABSENT)
        wanted = _argument(arguments, name)
        if value is edit.ABSENT or value == "auto" or wanted is edit.ABSENT:
            continue
        if value != wanted or isinstance(value, str) != isinstance(wanted, str):
            found.append(_mismatch(dotted, value, name, wanted))
    found.extend(_batch(document, arguments, situation))
    return found


def _argument(arguments: Mapping[str, Any], name: str) -> Any:
    for candidate in (name, *OTHER_NAMES.get(name, ())):
        if candidate in arguments:
            return arguments[candidate]
    return edit.ABSENT


def _batch(
    document: dict[str, Any], arguments: Mapping[str, Any], situation: Situation
) -> list[Finding]:
    value = document.get("train_batch_size")
    if value is None or value == "auto":
        return []
    total = arguments.get("train_batch_size")
    if total is None and situation.world_size:
        micro = _argument(arguments, "per_device_train_batch_size")
        steps = arguments.get("gradient_accumulation_steps", 1)
        if isinstance(micro, int) and isinstance(steps, int):
            total = micro * steps * situation.world_size
    if total is None or total == value:
        return []
    return [_mismatch("train_batch_size", value, "train_batch_size (calculated)", total)]


def _mismatch(dotted: str, value: Any, name: str, wanted: Any) -> Finding:
    typed = ""
    if str(value) == str(wanted):
        typed = f" (one is {type(value).__name__}, the other {type(wanted).__name__})"
    return Finding(
        "error",
        "trainer-mismatch",
        dotted,
        f"the config says {value!r}, TrainingArguments {name} says {wanted!r}{typed}: HF "
        f"Trainer stops "
        "and asks to correct it",
        'write "auto": Trainer fills in its own value',
        (Patch("set", tuple(dotted.split(".")), "auto"),),
    )


def unfold(document: dict[str, Any]) -> dict[str, Any]:
    """A summary with lr and warm-up at the top, as the nested config that it stands for."""
    out = dict(document)
    for name, path in SHORT.items():
        if name in out:
            value = out.pop(name)
            if edit.get(out, path, edit.ABSENT) is edit.ABSENT:
                nested = edit.apply(out, ())
                edit.put(nested, path, value)
                out = nested
    return out
