"""The batch triple: train_batch_size = micro-batch x accumulation x data-parallel ranks."""

import math
from collections.abc import Mapping
from typing import Any

from planner.check import edit
from planner.check.engine import BATCH_KEYS, complete_triple
from planner.check.engine.blocks import Refused
from planner.check.report import Finding, Patch
from planner.check.situation import RESOLVES_AUTO, Situation

TRAIN, MICRO, STEPS = BATCH_KEYS


def model_parallel(document: Mapping[str, Any], situation: Situation) -> int:
    """Ranks that see the same sequences, as far as the run's description tells (TP x PP x SP)."""
    autotp = edit.get(document, ("tensor_parallel", "autotp_size"), 1)
    autotp = autotp if isinstance(autotp, int) and autotp > 0 else 1
    pp = situation.degree("pp") if situation.mode in ("pipeline", "megatron_deepspeed") else 1
    tp = situation.degree("tp") if situation.mode == "megatron_deepspeed" else autotp
    return max(1, tp * pp)


def ranks_checked(document: Mapping[str, Any], situation: Situation, world_size: int) -> float:
    """Ranks that the engine multiplies by: AutoTP's count too, pipeline stages do not."""
    seen = engine_world(document, situation, world_size)
    size = document.get("sequence_parallel_size")
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return seen / size
    return seen


def engine_world(document: Mapping[str, Any], situation: Situation, world_size: int) -> int:
    """The world size that the config class sees: over an mpu, data-parallel ranks alone.

    A pipeline and Megatron hand one over, and Ulysses does (runtime/config.py:458); AutoTP does
    not.
    """
    shared = 1
    if situation.mode in ("pipeline", "megatron_deepspeed"):
        shared = model_parallel(document, situation)
    if "sequence_parallel_size" not in document:
        shared *= situation.degree("sp")
    return max(1, world_size // shared)


def fitting_world(document: Mapping[str, Any]) -> int | None:
    """The one world size at which a fully given triple holds; None where any or none does."""
    train, micro, steps = (document.get(k) for k in BATCH_KEYS)
    size = document.get("sequence_parallel_size", 1)
    size = size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 1
    if not _whole(train):
        return None
    if _whole(micro) and _whole(steps):
        ranks = train / (micro * steps)  # type: ignore[operator]
        world = ranks * size
        return int(world) if world >= 1 and world == int(world) else None
    return None


def _whole(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
        and value == int(value)
    )


def check(document: dict[str, Any], situation: Situation) -> list[Finding]:
    """Findings about the three batch numbers, with the three ways to mend them."""
    given = {k: document.get(k) for k in BATCH_KEYS if document.get(k) is not None}
    if any(v == "auto" for v in given.values()):
        return _with_auto(given, situation)
    if any(not _whole(v) for v in given.values()):
        return []
    if TRAIN not in given and MICRO not in given:
        return _missing(given, situation)
    if situation.world_size is None:
        return _any_world(document, given)
    return _at_world(document, situation, given, situation.world_size)


def _with_auto(given: dict[str, Any], situation: Situation) -> list[Finding]:
    if situation.mode not in RESOLVES_AUTO and situation.mode != "unknown":
        return []
    if isinstance(given.get(TRAIN), int) and MICRO in given:
        return [
            Finding(
                "warning",
                "batch-fixed",
                TRAIN,
                f"train_batch_size {given[TRAIN]} is fixed while the rest is auto: it holds for "
                f"one "
                "number of GPUs only, and HF Trainer refuses every other",
                'write "auto" for all three',
                (Patch("set", (TRAIN,), "auto"),),
            )
        ]
    return []


def _missing(given: dict[str, Any], situation: Situation) -> list[Finding]:
    auto = situation.mode in RESOLVES_AUTO
    if situation.mode == "accelerate":
        return []
    only = " (gradient_accumulation_steps alone does not do)" if STEPS in given else ""
    value: Any = "auto" if auto else 1
    return [
        Finding(
            "error",
            "batch-missing",
            TRAIN,
            f"neither train_batch_size nor train_micro_batch_size_per_gpu is given{only}: the "
            f"engine "
            "refuses that",
            f"write {MICRO} ({value!r} in the mended file)",
            (Patch("set", (MICRO,), value),),
        )
    ]


def _derived(given: dict[str, Any]) -> Finding:
    """How the engine completes what is not given (runtime/config.py)."""
    if TRAIN not in given:
        how = f"train_batch_size = micro-batch x {'accumulation' if STEPS in given else 1} x ranks"
        if STEPS not in given:
            how += ", with an accumulation of 1"
    elif STEPS in given:
        how = "micro-batch = train_batch_size / ranks / accumulation, rounded down"
    else:
        how = "micro-batch = train_batch_size / ranks, with an accumulation of 1"
    return Finding(
        "note", "batch-derived", TRAIN, f"the engine derives the rest: {how}", "nothing to do"
    )


def _any_world(document: dict[str, Any], given: dict[str, Any]) -> list[Finding]:
    if len(given) < 3 and not (TRAIN in given and MICRO in given):
        return [_derived(given)]
    if len(given) < 3:
        per = given[TRAIN] / given[MICRO]
        if per < 1:
            return [_below(given, 1.0)]
        if per != int(per):
            return _triple(document, given, 0, per)
        return [_worlds_note(given, f"any number of GPUs that divides {per:g}")]
    world = fitting_world(document)
    product = given[MICRO] * given[STEPS]
    if world is not None:
        return [_worlds_note(given, f"{world} GPU{'s' * (world != 1)} and no other number")]
    return _triple(document, given, 0, given[TRAIN] / product)


def _worlds_note(given: dict[str, Any], which: str) -> Finding:
    numbers = " and ".join(f"{k} {int(v)}" for k, v in given.items())
    return Finding(
        "note",
        "batch-world-sizes",
        TRAIN,
        f"{numbers} hold at {which}",
        "give two of the three and let the engine derive the third; --world-size checks yours",
    )


def _at_world(
    document: dict[str, Any], situation: Situation, given: dict[str, Any], world: int
) -> list[Finding]:
    ranks = ranks_checked(document, situation, world)
    try:
        triple = complete_triple(document, ranks)
    except Refused:
        return []
    out: list[Finding] = []
    if triple.micro < 1 or triple.accumulation < 1:
        return [_below(given, ranks)]
    if triple.train != triple.micro * triple.accumulation * ranks:
        return _triple(document, given, world, ranks)
    shared = model_parallel(document, situation)
    if shared > 1 and situation.mode not in ("pipeline", "megatron_deepspeed"):
        real = int(triple.micro * triple.accumulation * world // shared)
        out.append(
            Finding(
                "warning",
                "batch-tensor-parallel",
                TRAIN,
                f"with autotp_size {shared} the data-parallel degree is {world}/{shared} = "
                f"{world // shared}: the engine counts {int(triple.train)} sequences a step, and "
                f"{real} are trained ({int(triple.micro)} x {int(triple.accumulation)} x "
                f"{world // shared})",
                f"read the real batch as {real}; for {int(triple.train)} multiply the accumulation "
                f"by {shared}",
            )
        )
    if len(given) == 1 and TRAIN in given and triple.micro > 64:
        out.append(
            Finding(
                "warning",
                "batch-derived",
                TRAIN,
                f"with train_batch_size alone the engine takes no accumulation: the micro-batch is "
                f"{int(triple.micro)} on each of {ranks:g} ranks",
                f"give {MICRO} as well",
            )
        )
    return out


def _below(given: dict[str, Any], ranks: float) -> Finding:
    train = int(given[TRAIN])
    micro, steps = int(given.get(MICRO, 1)), int(given.get(STEPS, 1))
    if MICRO in given:
        what = f"{MICRO} {micro} x {ranks:g} ranks is more than train_batch_size {train}"
        effect = "the engine derives 0 accumulation steps and refuses that"
    else:
        what = f"train_batch_size {train} is below {steps} accumulation steps x {ranks:g} ranks"
        effect = "the engine derives a micro-batch of 0 and refuses that"
    smaller = max(1, int(train // ranks)) if ranks <= train else 0
    ways = [f"train_batch_size {int(micro * steps * ranks)}"]
    if smaller and MICRO in given:
        ways.append(f"{MICRO} {smaller}")
    if STEPS in given and smaller:
        ways.append(f"{STEPS} {max(1, int(train // ranks))}")
    fewer = max(1, int(train // (micro * steps)))
    ways.append(f"{fewer} GPU{'s' * (fewer != 1)}")
    patch = Patch("set", (TRAIN,), int(micro * steps * ranks))
    return Finding(
        "error",
        "batch-too-small",
        TRAIN,
        f"{what}: {effect}",
        "either " + ", or ".join(ways),
        (patch,),
    )


def _triple(
    document: dict[str, Any], given: dict[str, Any], world: int, ranks: float
) -> list[Finding]:
    """The three ways to mend a triple that does not multiply up."""
    train = int(given[TRAIN])
    micro, steps = given.get(MICRO), given.get(STEPS)
    if world == 0:
        return [
            Finding(
                "error",
                "batch-triple",
                TRAIN,
                f"{train} is not {int(micro or 1)} x {int(steps or 1)} x any whole number of ranks",
                f"train_batch_size must be a multiple of {int((micro or 1) * (steps or 1))}; or "
                f"drop {STEPS} and let the engine derive it",
                (Patch("set", (TRAIN,), _nearest(train, int((micro or 1) * (steps or 1)))),),
            )
        ]
    per = int((micro or 1) * ranks) or 1
    product = int((micro or 1) * (steps or 1) * ranks)
    ways = [f"train_batch_size {product}"]
    low, high = train // per * per, -(-train // per) * per
    if train % per == 0:
        ways.append(f"{STEPS} {train // per}")
    else:
        ways.append(
            f"a multiple of {per} ({MICRO} x ranks): " + (f"{low} or {high}" if low else str(high))
        )
    share = max(1, int((steps or 1) * ranks))
    if steps and train % share == 0:
        ways.append(f"{MICRO} {train // share}")
    fitting = fitting_world(document)
    if fitting:
        ways.append(f"{fitting} GPU{'s' * (fitting != 1)}")
    else:
        base = int((micro or 1) * (steps or 1))
        worlds = [w for w in range(1, min(train // base, 4096) + 1) if train % (base * w) == 0]
        if not steps:
            near = [w for w in worlds if w > world][:1] or worlds[-1:]
            ways.append(f"{near[0]} GPUs" if near else f"a batch that {world} ranks divide")
    reason = (
        f"{train} is not {int(micro or 1)} x {int(steps or max(1, train // per))} x {ranks:g} "
        f"(train_batch_size, micro-batch, accumulation, ranks)"
    )
    if world == 1:
        reason += (
            "; where more GPUs were meant, the engine saw a world of 1: start it with deepspeed or "
            "torchrun, not python, and before the config is read (under mpirun, RANK, "
            "WORLD_SIZE and "
            "MASTER_ADDR must be set)"
        )
    mended = (
        Patch("set", (STEPS,), train // per)
        if train % per == 0
        else Patch("set", (TRAIN,), product if steps else high)
    )
    return [
        Finding("error", "batch-triple", TRAIN, reason, "either " + ", or ".join(ways), (mended,))
    ]


def _nearest(value: int, step: int) -> int:
    return max(step, round(value / step) * step) if step > 0 else value
