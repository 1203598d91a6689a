"""The value of every known key: its type, its range, "auto" outside HF Trainer."""

import math
import operator
import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from planner.check import edit, schema
from planner.check.engine import BATCH_KEYS
from planner.check.reader import Document, Placeholder
from planner.check.report import Finding, Patch, Path
from planner.check.situation import RESOLVES_AUTO, Situation

NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*\Z")
WORDS = {"true": True, "false": False, "yes": True, "no": False, "none": None, "null": None}
OWN_AUTO = {
    "data_types.keep_in_fp32_modules",
    "pipeline.stages",
    "zero_optimization.zenflow.select_strategy",
    "zero_optimization.zenflow.select_interval",
    "zero_optimization.zenflow.update_interval",
}
"""Keys for which "auto" is a value of DeepSpeed's own."""
NUMERIC_PARAMS = ("lr", "eps", "weight_decay", "warmup_num_steps", "warmup_min_lr", "warmup_max_lr")
ZERO_IS_DEGENERATE = {
    "sub_group_size": "one parameter a tile: the optimizer steps through the model piecemeal",
    "max_live_parameters": "nothing may stay gathered: every parameter is fetched at each use",
    "stage3_max_live_parameters": "nothing may stay gathered: every parameter is fetched at "
    "each use",
    "max_reuse_distance": "every parameter is released at once and gathered again",
    "stage3_max_reuse_distance": "every parameter is released at once and gathered again",
    "allgather_bucket_size": "gathers of nothing at a time",
}


@cache
def resolvers() -> dict[str, dict[str, Any]]:
    """Keys whose "auto" somebody resolves: by whom, and to what."""
    text = (files("planner.check") / "data" / "auto.toml").read_text("utf-8")
    return {row["path"]: row for row in tomllib.loads(text)["auto"]}


def check(document: dict[str, Any], read: Document, situation: Situation) -> list[Finding]:
    """Findings about the values of a document whose keys are already put right."""
    known = schema.load(situation.version)
    found: list[Finding] = []
    for path, value in edit.leaves(document):
        if isinstance(value, Placeholder):
            continue
        if value == "auto" and isinstance(value, str):
            one = _auto(path, known, situation)
        else:
            one = _value(path, value, known, read)
        if one is not None:
            found.append(one)
    return found


def _auto(  # noqa: PLR0911
    path: Path, known: schema.Schema, situation: Situation
) -> Finding | None:
    dotted = ".".join(path)
    if dotted in OWN_AUTO or path[0] == "expert_parallel":
        return None
    block = known.block(path[:-1])
    if block is None or (block.open and path[0] not in ("optimizer", "scheduler")):
        return None
    if dotted.startswith("zero_optimization.") and path[-1] not in block.keys:
        return None
    row = resolvers().get(_alias(path))
    mode = situation.mode
    if mode in RESOLVES_AUTO and row and mode in row["by"]:
        return Finding("note", "auto", dotted, f'"auto" becomes {row["becomes"]}', "nothing to do")
    names = {"hf_trainer": "HF Trainer", "accelerate": "Accelerate"}
    who = " and ".join(names[n] for n in row["by"]) if row else "nobody"
    if mode == "accelerate":
        return Finding(
            "error",
            "auto-not-resolved",
            dotted,
            f'Accelerate does not resolve "auto" here and stops (resolved by {who})',
            "write a number, or drop the key for the engine's default",
            (Patch("remove", path),),
        )
    if mode == "hf_trainer":
        return Finding(
            "warning",
            "auto-not-resolved",
            dotted,
            f'HF Trainer does not resolve "auto" here; the engine then takes '
            f"{_default(path, known)}",
            "write the value, or drop the key",
            (Patch("remove", path),),
        )
    return _auto_outside(path, block, known, situation, who)


def _auto_outside(
    path: Path, block: schema.Block, known: schema.Schema, situation: Situation, who: str
) -> Finding:
    dotted = ".".join(path)
    stops = dotted in BATCH_KEYS
    if stops:
        effect = "the engine computes with it and stops with a TypeError"
    elif block.strict:
        effect = f"the engine drops it and takes its default, {_default(path, known)}"
    else:
        effect = "the config passes, and the engine stops where the value is used"
    told = situation.mode in ("deepspeed", "pipeline", "megatron_deepspeed")
    wrong = stops or (told and not block.strict) or dotted == "zero_optimization.stage"
    remedy = "write the number" if stops or not block.strict else "write the value, or drop the key"
    patches = () if stops else (Patch("remove", path),)
    if dotted in ("bf16.enabled", "fp16.enabled"):
        patches = (Patch("set", path, dotted == "bf16.enabled" or not situation.facts["has_bf16"]),)
    return Finding(
        "error" if wrong else "warning",
        "auto-outside-trainer",
        dotted,
        (
            f'"auto" is resolved by {who}'
            + ("" if who == "nobody" else ", not by DeepSpeed")
            + f": {effect}"
        ),
        remedy
        + (
            ""
            if who == "nobody"
            else "; or run it through HF Trainer (--software hf_trainer checks that)"
        ),
        patches,
    )


def _alias(path: Path) -> str:
    """The dotted path with ZeRO's stage-3 names in their long spelling."""
    last = path[-1]
    if path[0] == "zero_optimization" and last in (
        "prefetch_bucket_size",
        "param_persistence_threshold",
        "gather_16bit_weights_on_model_save",
    ):
        return ".".join((*path[:-1], f"stage3_{last}"))
    return ".".join(path)


def _default(path: Path, known: schema.Schema) -> str:
    field = known.field(path) or {}
    default = field.get("default")
    if default is None:
        return "none"
    return f"{default:g}" if isinstance(default, float) else str(default).lower()


def _value(  # noqa: PLR0911
    path: Path, value: Any, known: schema.Schema, read: Document
) -> Finding | None:
    field = known.field(path)
    if field is None:
        return _parameter(path, value)
    if ".".join(path) in BATCH_KEYS:
        return _integer(path, value, {"gt": 0}, read, strict=True)
    kind = field.get("type")
    if isinstance(kind, dict) and "optional" in kind:
        if value is None:
            return None
        kind = kind["optional"]
    if schema.model_of(kind) or kind == "dict":
        return _block(path, value, known)
    if kind is None:
        return _by_default(path, value, field.get("default"))
    if kind == "int":
        return _integer(path, value, field, read, strict=True)
    if kind == "float":
        return _number(path, value, field)
    if kind == "bool":
        return _flag(path, value)
    if isinstance(kind, dict) and "enum" in kind:
        return _choice(path, value, kind["enum"])
    if isinstance(kind, dict) and "literal" in kind:
        return _choice(path, value, kind["literal"])
    return None


def _block(path: Path, value: Any, known: schema.Schema) -> Finding | None:
    if isinstance(value, dict):
        return None
    dotted = ".".join(path)
    inner = known.block(path)
    keys = inner.keys if inner else {}
    if dotted == "zero_optimization" and isinstance(value, bool):
        put: Any = {"stage": int(value)}
        return Finding(
            "warning",
            "deprecated-form",
            dotted,
            f"the old form: {str(value).lower()} means stage {int(value)}",
            f"write {put}",
            (Patch("set", path, put),),
        )
    patch: Patch = Patch("remove", path)
    mend = "write a block { … }"
    if isinstance(value, bool) and "enabled" in keys:
        patch, mend = (
            Patch("set", path, {"enabled": value}),
            f'write {{"enabled": {value}}}'.lower(),
        )
    elif isinstance(value, str) and "device" in keys and value in ("cpu", "nvme", "none"):
        patch, mend = Patch("set", path, {"device": value}), f'write {{"device": "{value}"}}'
    elif isinstance(value, bool) and "device" in keys:
        device = "cpu" if value else "none"
        patch, mend = Patch("set", path, {"device": device}), f'write {{"device": "{device}"}}'
    elif isinstance(value, int) and dotted == "zero_optimization" and value in (1, 2, 3):
        patch, mend = Patch("set", path, {"stage": value}), f'write {{"stage": {value}}}'
    elif isinstance(value, str) and "type" in keys and path[0] in ("optimizer", "scheduler"):
        patch, mend = Patch("set", path, {"type": value}), f'write {{"type": "{value}"}}'
    elif value is None:
        mend = "drop the key"
    return Finding(
        "error",
        "wrong-type",
        dotted,
        f"{_show(value)} where a block of keys belongs",
        mend,
        (patch,),
    )


def _parameter(path: Path, value: Any) -> Finding | None:
    """Numbers of optimizer and scheduler, which the engine hands on unread."""
    if path[0] not in ("optimizer", "scheduler") or path[1:2] != ("params",):
        return None
    if path[-1] in NUMERIC_PARAMS and isinstance(value, str):
        return _string_number(path, value, whole=False, refused=True)
    if path[-1] == "betas" and not (isinstance(value, list) and len(value) in (2, 3)):
        return Finding(
            "error", "wrong-type", ".".join(path), f"{_show(value)} where two numbers belong",
            "write [0.9, 0.999]", (Patch("set", path, [0.9, 0.999]),),
        )  # fmt: skip
    return None


def _by_default(path: Path, value: Any, default: Any) -> Finding | None:
    """Plain blocks check nothing: the default tells the type."""
    if isinstance(default, bool) and isinstance(value, str):
        return _flag(path, value)
    number = isinstance(default, int | float) and not isinstance(default, bool)
    if number and isinstance(value, str) and NUMBER.match(value):
        return _string_number(path, value, whole=isinstance(default, int), refused=False)
    return None


def _string_number(path: Path, value: str, *, whole: bool, refused: bool) -> Finding:
    dotted = ".".join(path)
    if not NUMBER.match(value):
        return Finding(
            "error", "wrong-type", dotted, f"{_show(value)} where a number belongs",
            "write a number, or drop the key", (Patch("remove", path),),
        )  # fmt: skip
    number: float | int = float(value)
    if whole and math.isfinite(number) and number == int(number):
        number = int(number)
    return Finding(
        "error" if refused else "warning",
        "string-number",
        dotted,
        f"{_show(value)} is a string, not a number"
        + ("" if refused else "; the engine converts it, HF Trainer compares it as text"),
        f"write {number} without quotes",
        (Patch("set", path, number),),
    )


def _integer(  # noqa: PLR0911
    path: Path, value: Any, field: dict[str, Any], read: Document, *, strict: bool
) -> Finding | None:
    dotted = ".".join(path)
    batch = dotted in BATCH_KEYS
    if isinstance(value, str):
        converts = re.fullmatch(r"\s*[-+]?\d+\s*", value) is not None and not batch
        return _string_number(path, value, whole=True, refused=not converts)
    if isinstance(value, bool):
        return Finding(
            "error" if batch else "warning", "wrong-type", dotted,
            f"{str(value).lower()} where an integer belongs; it counts as {int(value)}",
            "write the number", (Patch("set", path, int(value)),) if not batch else (),
        )  # fmt: skip
    if value is None:
        if batch:
            return None
        return _wrong_type(path, value, "an integer")
    if not isinstance(value, int | float):
        return _wrong_type(path, value, "an integer")
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        whole = round(value) if math.isfinite(value) else None
        patch = Patch("set", path, whole) if whole else Patch("remove", path)
        return Finding(
            "error", "not-an-integer", dotted, f"{value:g} has a fraction; an integer belongs here",
            f"write {whole}" if whole else "write an integer", (patch,),
        )  # fmt: skip
    bad = _outside(value, field)
    if bad:
        if batch:
            return Finding("error", "out-of-range", dotted, f"{value:g} must be {bad}",
                           "write a number above 0, or drop the key and let the engine derive it",
                           (Patch("remove", path),))  # fmt: skip
        return Finding("error", "out-of-range", dotted, f"{value:g} must be {bad}",
                       "drop the key for the default", (Patch("remove", path),))  # fmt: skip
    if value == 0 and path[-1] in ZERO_IS_DEGENERATE:
        return Finding(
            "warning", "degenerate-value", dotted, f"0 is accepted and means {_degenerate(path)}",
            "drop the key for the default, 1e9", (Patch("remove", path),),
        )  # fmt: skip
    written = read.scientific.get(path)
    if written is not None and abs(value) < 1e18:
        return Finding(
            "note", "float-literal", dotted,
            f"{written} is a float in JSON; DeepSpeed takes it as {int(value)}, other readers "
            f"may not",
            f"write {int(value)}", (Patch("set", path, int(value)),),
        )  # fmt: skip
    return None


def _degenerate(path: Path) -> str:
    return ZERO_IS_DEGENERATE[path[-1]]


def _number(path: Path, value: Any, field: dict[str, Any]) -> Finding | None:
    dotted = ".".join(path)
    if isinstance(value, str):
        converts = NUMBER.match(value) is not None
        return _string_number(path, value, whole=False, refused=not converts)
    if isinstance(value, bool) or value is None or not isinstance(value, int | float):
        return _wrong_type(path, value, "a number")
    bad = _outside(value, field)
    if bad is None and dotted == "fp16.loss_scale" and value < 0:
        bad = "0 (dynamic) or above"
    if bad:
        return Finding("error", "out-of-range", dotted, f"{value:g} must be {bad}",
                       "drop the key for the default", (Patch("remove", path),))  # fmt: skip
    return None


def _flag(path: Path, value: Any) -> Finding | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.lower() in WORDS and WORDS[value.lower()] is not None:
        right = WORDS[value.lower()]
        return Finding(
            "warning", "string-flag", ".".join(path), f"{_show(value)} is a string, not true or "
            f"false",
            f"write {str(right).lower()} without quotes", (Patch("set", path, right),),
        )  # fmt: skip
    if isinstance(value, int | float) and value in (0, 1):
        return None
    return _wrong_type(path, value, "true or false")


def _choice(path: Path, value: Any, choices: list[Any]) -> Finding | None:
    dotted = ".".join(path)
    if value in choices and not isinstance(value, bool):
        return None
    listed = ", ".join(str(c) for c in choices)
    whole = all(isinstance(c, int) for c in choices)
    if isinstance(value, str) and whole and value.strip() in {str(c) for c in choices}:
        return _string_number(path, value, whole=True, refused=False)
    lower = {str(c).lower(): c for c in choices}
    if isinstance(value, str) and value.lower() in lower:
        right = lower[value.lower()]
        return Finding("error", "out-of-range", dotted, f"{_show(value)} is none of {listed}",
                       f"write {right}", (Patch("set", path, right),))  # fmt: skip
    if isinstance(value, bool | float) and value in choices:
        return None
    if isinstance(value, str) and value.lower() in ("gpu", "cuda") and "none" in lower:
        return Finding("error", "out-of-range", dotted, f"{_show(value)}: staying on the GPU is "
        f"none",
                       "write none", (Patch("set", path, "none"),))  # fmt: skip
    best = ""
    patch = Patch("remove", path)
    if dotted == "zero_optimization.stage" and isinstance(value, int) and value > 3:
        best, patch = " (the highest is 3)", Patch("set", path, 3)
    return Finding("error", "out-of-range", dotted, f"{_show(value)} is none of {listed}{best}",
                   f"write one of {listed}", (patch,))  # fmt: skip


def _outside(value: float, field: dict[str, Any]) -> str | None:
    for word, says, holds in (
        ("ge", "at least", operator.ge),
        ("gt", "above", operator.gt),
        ("le", "at most", operator.le),
        ("lt", "below", operator.lt),
    ):
        if word in field and not holds(value, field[word]):
            return f"{says} {field[word]:g}"
    return None


def _wrong_type(path: Path, value: Any, wanted: str) -> Finding:
    return Finding(
        "error", "wrong-type", ".".join(path), f"{_show(value)} where {wanted} belongs",
        f"write {wanted}, or drop the key", (Patch("remove", path),),
    )  # fmt: skip


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
