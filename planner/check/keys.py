"""Every key of a config: known, misspelt, misplaced, removed, renamed, or of another version."""

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from planner.check import edit, schema
from planner.check.report import Finding, Patch, Path
from planner.check.schema import Block, Schema
from planner.check.situation import FACT_NAMES, PACKAGES, TRAINER_NAMES, Situation
from planner.check.versions import within

CLOSE = 0.8
VERY_CLOSE = 0.88
COMMENTS = ("_", "//", "#", "comment", "$", "x-", "note", "description")


@dataclass(frozen=True)
class Wrong:
    """A key that people write, and where its value belongs."""

    to: Path
    why: str
    versions: str = ""
    keep_as: str = ""
    """The fact about the run that the key tells, though DeepSpeed ignores it."""


@cache
def _wrong() -> dict[str, Wrong]:
    return {
        row["path"]: Wrong(
            tuple(row["to"].split(".")) if row["to"] else (),
            row["why"],
            row.get("versions", ""),
            row.get("keep_as", ""),
        )
        for row in _data()["wrong"]
    }


@cache
def _removed_mends() -> dict[str, str]:
    return {row["path"]: row["mend"] for row in _data()["removed"]}


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads((files("planner.check") / "data" / "keys.toml").read_text("utf-8"))


def check(document: dict[str, Any], situation: Situation) -> list[Finding]:
    """Findings about keys, each with the patch that puts the key right."""
    known = schema.load(situation.version)
    found: list[Finding] = []
    _walk(document, (), known, document, found)
    return found


def _walk(
    block: dict[str, Any],
    path: Path,
    known: Schema,
    document: dict[str, Any],
    found: list[Finding],
) -> None:
    here = known.block(path)
    if here is None:
        return
    for key, value in block.items():
        inner = (*path, key)
        finding = _judge(inner, value, here, known, document)
        if finding is not None:
            found.append(finding)
        if isinstance(value, dict):
            if here.open:
                found.extend(_spaces(value, inner))
            else:
                _walk(value, inner, known, document, found)


def _spaces(block: dict[str, Any], path: Path) -> list[Finding]:
    return [
        _whitespace((*path, *inner))
        for inner, _ in edit.leaves(block)
        if inner[-1] != inner[-1].strip()
    ]


def _whitespace(path: Path) -> Finding:
    right = path[-1].strip()
    return Finding(
        "error",
        "whitespace-key",
        ".".join(path),
        f"the key {path[-1]!r} has white space around it, so nothing finds it",
        f"write {right}",
        (Patch("move", path, to=(*path[:-1], right)),),
    )


def _judge(
    path: Path, value: Any, here: Block, known: Schema, document: dict[str, Any]
) -> Finding | None:
    key, dotted = path[-1], ".".join(path)
    if key != key.strip() and (here.open or key.strip() in here.keys):
        return _whitespace(path)
    if here.open:
        wrong = _wrong().get(dotted)
        return _meant(path, wrong, here, document) if wrong else None
    if (len(path) == 1 and key in known.removed) or (
        path[:-1] == ("zero_optimization",) and key in known.removed_zero
    ):
        return _removed(path, known)
    field = here.keys.get(key)
    if field is not None:
        return _deprecated(path, value, field, document)
    return _unknown(path, value, here, known, document)


def _removed(path: Path, known: Schema) -> Finding:
    dotted = ".".join(path)
    had = schema.known_in(dotted)
    until = f" (0 to {had[-1]} had it)" if had else ""
    if had:
        until = f" ({had[-1]} still had it)"
    return Finding(
        "error",
        "removed-key",
        dotted,
        f"{dotted} was removed: DeepSpeed {known.version} refuses it{until}",
        _removed_mends().get(dotted, "drop it"),
        (Patch("remove", path),),
    )


def _deprecated(
    path: Path, value: Any, field: dict[str, Any], document: dict[str, Any]
) -> Finding | None:
    dotted = ".".join(path)
    if dotted == "bfloat16":
        return Finding(
            "warning",
            "deprecated-key",
            dotted,
            "bfloat16 is the old name of the block, read only where bf16 is not given",
            "write bf16",
            (Patch("move", path, to=("bf16",)),),
        )
    old = field.get("deprecated")
    if not old:
        return None
    new = str(old["new"])
    target = (*path[:-1], new)
    if not old["sets"]:
        return Finding(
            "warning",
            "deprecated-key",
            dotted,
            f"{path[-1]} is deprecated and does nothing",
            "write pin_memory inside offload_optimizer or offload_param",
            (Patch("remove", path), *_pin(path, value, document)),
        )
    both = edit.get(document, target, edit.ABSENT) is not edit.ABSENT
    put = value
    if new.startswith("offload_"):
        put = {"device": "cpu"} if value else {"device": "none"}
    elif new == "gather_16bit_weights_on_model_save":
        target = (*path[:-1], "stage3_gather_16bit_weights_on_model_save")
    patches = (Patch("remove", path),)
    return Finding(
        "error" if both else "warning",
        "deprecated-key",
        dotted,
        f"{path[-1]} is deprecated"
        + (f", and the engine refuses it beside {new}" if both else f"; {new} replaced it"),
        f"drop {path[-1]}" if both else f"write {'.'.join(target)} = {put!r}",
        patches if both else (*patches, Patch("set", target, put)),
    )


def _pin(path: Path, value: Any, document: dict[str, Any]) -> tuple[Patch, ...]:
    blocks = [(*path[:-1], b) for b in ("offload_optimizer", "offload_param")]
    return tuple(
        Patch("set", (*b, "pin_memory"), bool(value))
        for b in blocks
        if isinstance(edit.get(document, b), dict)
    )


def _unknown(
    path: Path, value: Any, here: Block, known: Schema, document: dict[str, Any]
) -> Finding:
    key, dotted = path[-1], ".".join(path)
    wrong = _wrong().get(dotted)
    if wrong and within(known.version, wrong.versions):
        return _meant(path, wrong, here, document)
    if key.startswith(COMMENTS) or key.lower() in ("comment", "comments", "notes"):
        return Finding(
            "error" if here.strict else "note",
            "comment-key",
            dotted,
            f"{key} is a comment: "
            + ("the engine refuses unknown keys in this block" if here.strict else "ignored"),
            "drop it" if here.strict else "nothing to do",
            (Patch("remove", path),) if here.strict else (),
        )
    if not path[:-1] and (key in FACT_NAMES or key in PACKAGES or key in TRAINER_NAMES):
        return Finding(
            "note",
            "not-a-config-key",
            dotted,
            f"DeepSpeed reads no {key} in a config; taken here as a fact of the run",
            "keep it out of the config",
            (Patch("remove", path),),
        )
    target = _near(path, value, here, known)
    if target is not None:
        return _misspelt(path, target, here, document)
    elsewhere = [v for v in schema.known_in(dotted) if v != known.version]
    if elsewhere:
        return Finding(
            "error" if here.strict else "warning",
            "other-version-key",
            dotted,
            f"DeepSpeed {known.version} does not know {dotted}; {elsewhere[0]} to "
            f"{elsewhere[-1]} do",
            f"drop it, or use DeepSpeed {elsewhere[-1]}",
            (Patch("remove", path),),
        )
    effect = "and the engine refuses it here" if here.strict else "so the engine ignores it"
    return Finding(
        "error" if here.strict else "warning",
        "unknown-key",
        dotted,
        f"no DeepSpeed key is called {key} in {here.path or 'the top level'}, {effect}",
        "drop it",
        (Patch("remove", path),),
    )


def _meant(path: Path, wrong: Wrong, here: Block, document: dict[str, Any]) -> Finding:
    dotted = ".".join(path)
    code = "no-effect-key"
    if wrong.to:
        code = "misplaced-key" if path[:-1] != wrong.to[:-1] else "unknown-key"
        if path[:-1] == wrong.to[:-1] and wrong.why == "renamed":
            code = "renamed-key"
    taken = bool(wrong.to) and edit.get(document, wrong.to, edit.ABSENT) is not edit.ABSENT
    patch = Patch("move", path, to=wrong.to) if wrong.to and not taken else Patch("remove", path)
    target = ".".join(wrong.to)
    mend = f"write {target}" if wrong.to and not taken else "drop it"
    if taken and wrong.to:
        mend = f"drop it; {target} is there already"
    quiet = dotted == "cuda_visible_devices"
    return Finding("warning" if quiet else "error", code, dotted, wrong.why, mend, (patch,))


def _misspelt(path: Path, target: Path, here: Block, document: dict[str, Any]) -> Finding:
    dotted, right = ".".join(path), ".".join(target)
    moved = target[:-1] != path[:-1]
    taken = edit.get(document, target, edit.ABSENT) is not edit.ABSENT
    effect = "the engine refuses it" if here.strict else "the engine ignores it without a word"
    where = f"belongs in {'.'.join(target[:-1]) or 'the top level'}" if moved else "is no key here"
    return Finding(
        "error",
        "misplaced-key" if moved else "unknown-key",
        dotted,
        f"{path[-1]} {where}; {effect}",
        f"did you mean {right}?" + (" It is there already: drop this one." if taken else ""),
        (Patch("remove", path) if taken else Patch("move", path, to=target),),
    )


def _plain(key: str) -> str:
    return (
        key.lower()
        .strip()
        .replace("-", "_")
        .replace(" ", "_")
        .replace("optimisation", "optimization")
    )


def _near(path: Path, value: Any, here: Block, known: Schema) -> Path | None:
    """Where a key of nearly this name is known: in its block first, then elsewhere."""
    plain = _plain(path[-1])
    local = {_plain(k): k for k in here.keys}
    if plain in local:
        return (*path[:-1], local[plain])
    close = difflib.get_close_matches(plain, local, 1, CLOSE)
    exact = _elsewhere(path, value, plain, known)
    if close and not exact:
        return (*path[:-1], local[close[0]])
    if exact:
        return exact
    if len(plain) < 6:
        return None
    names = _leaf_names(known.version)
    far = difflib.get_close_matches(plain, names, 1, VERY_CLOSE)
    return _elsewhere(path, value, far[0], known) if far else None


@cache
def _leaf_names(version: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(p[-1] for p in schema.load(version).paths.values()))


GENERIC = frozenset({"enabled", "type", "params", "device", "project", "mode", "name", "profile"})


def _elsewhere(path: Path, value: Any, name: str, known: Schema) -> Path | None:
    """The one most likely other home of a key: the top level, ZeRO, then the shortest path."""
    if name in GENERIC:
        return None
    homes = [p for p in known.paths.values() if p[-1] == name and p != path]
    homes = [p for p in homes if "mpu" not in p and p[0] not in ("bfloat16", "autotuning")]
    if not homes:
        return None
    homes.sort(key=lambda p: (p[: len(path) - 1] != path[:-1], p[0] != "zero_optimization", len(p)))
    tops = [p for p in homes if len(p) == 1]
    best = tops[0] if tops else homes[0]
    field = known.field(best) or {}
    holds_block = schema.model_of(field.get("type")) is not None or field.get("type") == "dict"
    return None if isinstance(value, dict) and not holds_block else best


def facts_told(document: dict[str, Any]) -> dict[str, Any]:
    """Facts of the run that a config tells in keys which DeepSpeed ignores."""
    out: dict[str, Any] = {}
    for key, value in document.items():
        if key in FACT_NAMES:
            out[FACT_NAMES[key]] = value
    for dotted, wrong in _wrong().items():
        if not wrong.keep_as:
            continue
        value = edit.get(document, tuple(dotted.split(".")), edit.ABSENT)
        if value is edit.ABSENT:
            continue
        if isinstance(value, dict):
            numbers = [v for v in value.values() if isinstance(v, int) and not isinstance(v, bool)]
            value = numbers[0] if numbers else True
        out.setdefault(wrong.keep_as, value)
    if edit.get(document, ("pipeline",)) is True:
        out.setdefault("pp", True)
    return out
