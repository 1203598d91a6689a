"""Checks a config that somebody else wrote."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import yaml

from cost_model.specs import ClusterSpec, ModelSpec
from planner.check import (
    accelerate,
    batch,
    edit,
    engine,
    geometry,
    keys,
    reader,
    rules,
    schema,
    stages,
    syntax,
    trainer,
    values,
)
from planner.check.reader import Document, Placeholder
from planner.check.report import Finding, Patch, Report
from planner.check.situation import MODES, PACKAGES, TRAINER_NAMES, Mode, Situation

TRAINED_IN_BF16 = re.compile(
    r"llama-?[234]|llama3|codellama|mistral|mixtral|qwen|gemma|\bt5\b|t5-|flan|deepseek|phi-?[34]|"
    r"falcon|bloom|palm|olmo|bf16",
    re.IGNORECASE,
)
MOE_NAME = re.compile(r"mixtral|moe|-a\d+b|\dx\d+b|deepseek-?v|dbrx|gpt-oss", re.IGNORECASE)
KNOWN_OPTIMIZERS = frozenset(
    ["adam", "adamw", "lamb", "lion", "adagrad", "muadam", "muadamw", "musgd", "muon"]
)
ONEBIT = frozenset(["onebitadam", "zerooneadam", "onebitlamb"])
SCHEDULERS = frozenset(["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"])
NVIDIA_DRIVER = FilePath("/dev/nvidiactl")
LARGEST_TEXT = 1_000_000
MOST_REPAIRS = 40
"""Keys that the engine refuses and that are dropped one after another from the mended config."""


def check(
    text: str,
    *,
    model: ModelSpec | None = None,
    cluster: ClusterSpec | None = None,
    software: str | None = None,
    world_size: int | None = None,
    deepspeed_version: str = schema.DEFAULT_VERSION,
    packages: Mapping[str, str] | None = None,
    trainer_args: Mapping[str, Any] | None = None,
    accelerate_config: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    seq_len: int | None = None,
) -> Report:
    """Every finding about a ds_config, and the config mended.

    text: the file, JSON or nearly. software: who reads it (deepspeed, deepspeed_pipeline,
    hf_trainer, accelerate, megatron_deepspeed, llama_factory, axolotl); None is not known.
    world_size: ranks of the run; the cluster's GPUs where not given. packages: versions of other
    packages (transformers). facts: degrees and the like that no config holds, by the names of
    situation.FACT_NAMES. seq_len: tokens of a sequence, for the memory verdict.

    Never raises on any text. Raises ValueError for an unknown software.
    """
    mode: Mode = "unknown"
    if software is not None:
        if software not in MODES:
            raise ValueError(
                f"software must be one of {', '.join(sorted(MODES))}; got {software!r}"
            )
        mode = MODES[software]
    if len(text) > LARGEST_TEXT:
        too_long = Finding(
            "error",
            "too-long",
            "",
            f"{len(text)} characters are no ds_config",
            "give the config alone",
        )
        return Report(False, (too_long,))
    situation = Situation(
        mode,
        world_size if world_size is not None else (cluster.gpus if cluster else None),
        deepspeed_version,
        model,
        cluster,
        cuda=cluster is not None or NVIDIA_DRIVER.exists(),
        packages=packages or {},
        trainer=trainer_args,
        accelerate=accelerate_config,
        facts=facts or {},
    )
    return _check(text, situation, seq_len)


def _check(text: str, situation: Situation, seq_len: int | None) -> Report:
    read = _read(text)
    document, wrapped = _unwrap(read, situation)
    situation = _told(document, wrapped, situation)
    plain: dict[str, Any] = document
    refused = _refusal(text, plain, situation, bool(wrapped))
    found = syntax.findings(read, readable=_readable(text)) if not wrapped.get("_yaml") else []
    found.extend(_version(situation))
    if not isinstance(read.value, dict):
        found.append(
            Finding("error", "not-a-config", "", "the document is no block of keys", "write { … }")
        )
    working = document
    for passes in (_keys, _values, _combinations):
        new = passes(working, read, situation, seq_len)
        if _is_rendered_later(read):
            new = [f for f in new if f.code != "precision-both"]
        found.extend(new)
        working = edit.apply(working, _patches([f for f in new if not f.code.startswith("auto-")]))
    # "auto" stays in place until here: a key that is auto is given, for every combination.
    working = edit.apply(working, _patches([f for f in found if f.code.startswith("auto-")]))
    found.extend(accelerate.check(situation))
    if refused is not None and not any(f.severity == "error" for f in found):
        found.append(_unexplained(refused))
        working = _without(working, refused)
    working = _settle(working, situation)
    return Report(refused is None, tuple(_ordered(found)), _jsonable(working))


def _patches(found: list[Finding]) -> tuple[Patch, ...]:
    return tuple(p for f in found for p in f.patches)


def _read(text: str) -> Document:
    return reader.read(text)


def _is_rendered_later(read: Document) -> bool:
    """Whether a template's branches are in the text: both sides of an {% if %} are read then."""
    return any(s.code == "template" and "{%" in s.what for s in read.slips)


def _readable(text: str) -> bool:
    try:
        engine.read(text)
    except Exception:
        return False
    return True


def _unwrap(read: Document, situation: Situation) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ds_config itself, and what stood around it (an Accelerate config, Trainer arguments)."""
    value = read.value if isinstance(read.value, dict) else {}
    if not value:
        return {}, {}
    around: dict[str, Any] = {}
    inner = value
    for name in ("ds", "ds_config", "deepspeed_config", "deepspeed", "session_params"):
        block = value.get(name)
        if isinstance(block, dict) and "zero_optimization" not in value:
            if name == "deepspeed_config" and "zero_stage" in block:
                continue
            around = {k: v for k, v in value.items() if k != name}
            inner = trainer.unfold(block)
            read.scientific.clear()
            break
    return inner, around


def _told(document: dict[str, Any], around: dict[str, Any], situation: Situation) -> Situation:
    """The situation with what the pasted text itself tells of the run."""
    facts = {**keys.facts_told(around), **keys.facts_told(document), **situation.facts}
    everything = {**around, **document}
    changes: dict[str, Any] = {}
    if situation.trainer is None:
        given = next((everything[n] for n in TRAINER_NAMES if n in everything), None)
        if isinstance(given, dict):
            changes["trainer"] = given
            if situation.mode == "unknown":
                changes["mode"] = "hf_trainer"
    if situation.accelerate is None:
        if isinstance(everything.get("accelerate"), dict):
            changes["accelerate"] = everything["accelerate"]
        elif accelerate.is_accelerate(everything):
            changes["accelerate"] = everything
        elif isinstance(everything.get("default_config"), dict):
            changes["accelerate"] = everything["default_config"]
    for name in ("cli", "default_config", "nodes"):
        if name in everything:
            facts.setdefault(name, everything[name])
    told = {n: str(everything[n]) for n in PACKAGES if isinstance(everything.get(n), str)}
    changes["packages"] = {**told, **situation.packages}
    if "deepspeed" in told and situation.version == schema.DEFAULT_VERSION:
        changes["version"] = told["deepspeed"]
    world = facts.get("world_size")
    if situation.world_size is None and isinstance(world, int) and world > 0:
        changes["world_size"] = world
    if facts.get("pp") is True:
        facts["pp"] = 2
    changes["facts"] = _derived(document, facts, replace(situation, **changes))
    return replace(situation, **changes)


def _derived(
    document: dict[str, Any], facts: dict[str, Any], situation: Situation
) -> dict[str, Any]:
    """Facts that follow from others and that rules ask for by name."""
    out = dict(facts)
    model = situation.model
    name = (model.name if model else None) or facts.get("model_name") or ""
    name = name if isinstance(name, str) else ""
    trained = model.trained_in if model else None
    out["trained_in_bf16"] = trained == "bf16" or bool(TRAINED_IN_BF16.search(name))
    out["moe_model"] = (model.is_moe if model else bool(MOE_NAME.search(name))) and not facts.get(
        "native_moe"
    )
    kind = edit.get(document, ("optimizer", "type"))
    whole = document.get("optimizer")
    if isinstance(whole, str):
        kind = whole
    if isinstance(kind, str) and not isinstance(kind, Placeholder):
        lower = kind.lower()
        out["onebit_optimizer"] = lower in ONEBIT
        out["untested_optimizer"] = lower not in KNOWN_OPTIMIZERS | ONEBIT
        if "client" in lower:
            out["client_optimizer"] = True
    if situation.mode == "megatron_deepspeed":
        out["client_optimizer"] = True
    schedule = edit.get(document, ("scheduler", "type"))
    out["unknown_scheduler"] = (
        isinstance(schedule, str)
        and not isinstance(schedule, Placeholder)
        and schedule not in SCHEDULERS
    )
    if situation.mode == "pipeline":
        out.setdefault("pp", 2)
    autotp = edit.get(document, ("tensor_parallel",))
    out["tp_wanted"] = autotp is not None or situation.degree("tp") > 1 or facts.get("tp", 1) != 1
    saved, now = facts.get("tp_saved"), facts.get("tp_now")
    out["tp_changes"] = saved is not None and now is not None and saved != now
    before, after = facts.get("dp_saved"), facts.get("dp_now")
    out["dp_changes"] = before is not None and after is not None and before != after
    out["cuda"] = situation.cuda
    out["has_bf16"] = isinstance(document.get("bf16"), dict)
    return out


def _version(situation: Situation) -> list[Finding]:
    exact = schema.nearest(situation.version)
    if schema.version_key(exact) == schema.version_key(situation.version):
        return []
    newer = schema.version_key(situation.version) < schema.version_key(schema.versions()[0])
    kind = "older than every schema here" if newer else "not among the schemas here"
    return [
        Finding(
            "note",
            "version-reach",
            "",
            f"DeepSpeed {situation.version} is {kind}: keys are checked as of {exact}, "
            f"combinations by "
            "their version ranges, and engine_accepts by the order of 0.19.8",
            f"schemas: {', '.join(schema.versions())}",
        )
    ]


def _keys(
    document: dict[str, Any], read: Document, situation: Situation, seq_len: int | None
) -> list[Finding]:
    first = keys.check(document, situation)
    # A key that was moved to its place may be a deprecated one there.
    moved = edit.apply(document, _patches(first))
    return [*first, *(f for f in keys.check(moved, situation) if f.code == "deprecated-key")]


def _values(
    document: dict[str, Any], read: Document, situation: Situation, seq_len: int | None
) -> list[Finding]:
    return values.check(document, read, situation)


def _combinations(
    document: dict[str, Any], read: Document, situation: Situation, seq_len: int | None
) -> list[Finding]:
    from planner.check import fit

    return [
        *batch.check(document, situation),
        *stages.check(document, situation),
        *rules.check(document, situation),
        *geometry.check(document, situation),
        *trainer.check(document, situation),
        *fit.check(document, situation, seq_len),
    ]


def _refusal(
    text: str, document: dict[str, Any], situation: Situation, wrapped: bool
) -> engine.Refusal | None:
    """What the engine says to the file as it stands."""
    world = situation.world_size
    if world is None:
        world = batch.fitting_world(document) or 1
    try:
        raw = document if wrapped else engine.read(text)
    except Exception as error:
        return engine.Refusal("", f"the file cannot be read: {error}"[:300])
    if situation.mode in ("hf_trainer", "accelerate") and isinstance(raw, dict):
        raw = _resolved(raw)
    world = batch.engine_world(document, situation, world)
    return engine.refusal(raw, world, situation.version, cuda=situation.cuda)


def _resolved(document: dict[str, Any]) -> dict[str, Any]:
    """A copy in which every "auto" of a batch key is resolved, as Trainer and Accelerate do."""
    out = dict(document)
    if "auto" in (out.get(k) for k in engine.BATCH_KEYS if isinstance(out.get(k), str)):
        for key in engine.BATCH_KEYS:
            if out.get(key) == "auto":
                del out[key]
    if not any(k in out for k in engine.BATCH_KEYS[:2]):
        out["train_micro_batch_size_per_gpu"] = 1
    return out


def _unexplained(refused: engine.Refusal) -> Finding:
    return Finding(
        "error",
        "engine-refuses",
        refused.path,
        f"DeepSpeed refuses the config: {refused.why}",
        "correct or drop the key",
        (),
    )


def _without(document: dict[str, Any], refused: engine.Refusal) -> dict[str, Any]:
    path = tuple(refused.path.split(".")) if refused.path else ()
    while path and edit.get(document, path, edit.ABSENT) is edit.ABSENT:
        path = path[:-1]
    return edit.apply(document, (Patch("remove", path),)) if path else document


def _settle(document: dict[str, Any], situation: Situation) -> dict[str, Any]:
    """The mended config until the engine takes it: what one round of patches could not see."""
    world = situation.world_size
    for _ in range(4):
        wrong = [f for f in batch.check(document, situation) if f.severity == "error"]
        changed = edit.apply(document, _patches(wrong))
        if changed == document:
            break
        document = changed
    if situation.mode in ("hf_trainer", "accelerate") or _has_placeholder(document):
        return document
    if any(document.get(k) == "auto" for k in engine.BATCH_KEYS):
        document = _concrete(document)
    for _ in range(MOST_REPAIRS):
        ranks = world or batch.fitting_world(document) or 1
        ranks = batch.engine_world(document, situation, ranks)
        refused = engine.refusal(document, ranks, situation.version, cuda=situation.cuda)
        if refused is None:
            break
        if refused.path in engine.BATCH_KEYS:
            changed = _rebatched(document, int(ranks))
        else:
            changed = _without(document, refused)
        if changed == document:
            break
        document = changed
    return document


def _has_placeholder(document: dict[str, Any]) -> bool:
    return any(isinstance(v, Placeholder) for _, v in edit.leaves(document))


def _concrete(document: dict[str, Any]) -> dict[str, Any]:
    """Batch keys without "auto": what is left determines the rest, a micro-batch of 1 at least."""
    out = {k: v for k, v in document.items() if not (k in engine.BATCH_KEYS and v == "auto")}
    if not any(k in out for k in engine.BATCH_KEYS[:2]):
        out["train_micro_batch_size_per_gpu"] = 1
    return out


def _rebatched(document: dict[str, Any], ranks: int) -> dict[str, Any]:
    """The triple made to multiply up: the micro-batch and the accumulation are kept."""
    out = dict(document)
    train, micro, steps = engine.BATCH_KEYS

    def good(key: str) -> bool:
        value = out.get(key)
        return isinstance(value, int) and not isinstance(value, bool) and value > 0

    for key in (train, micro, steps):
        if key in out and not good(key):
            del out[key]
    if micro not in out and train in out:
        share = out[train] // (ranks * out.get(steps, 1))
        if share < 1:
            out[train] = ranks * out.get(steps, 1)
            share = 1
        out[micro] = share
    out.setdefault(micro, 1)
    out.pop(train, None)
    return out


def _ordered(found: list[Finding]) -> list[Finding]:
    """Errors first, then warnings, then notes; the same finding once."""
    rank = {"error": 0, "warning": 1, "note": 2}
    unique = list({(f.code, f.path, f.reason): f for f in found}.values())
    return sorted(unique, key=lambda f: rank[f.severity])


def _jsonable(value: Any) -> Any:
    """Plain JSON: placeholders as text, no infinity."""
    return json.loads(json.dumps(value, default=str).replace("Infinity", "null"))


def read_yaml(text: str) -> dict[str, Any]:
    """A YAML mapping (an Accelerate config); empty where it is none."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}
