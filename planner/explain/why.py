"""Why a candidate ranks where it does: what bounds it, and what it wins or loses by term."""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from cost_model.placement import Placement
from planner.candidate import GIB, Candidate, Difference, Explanation

WORDS = {
    "compute": "arithmetic",
    "recompute": "recomputing activations",
    "tp_comm": "tensor-parallel traffic",
    "sp_comm": "sequence-parallel traffic",
    "ep_comm": "the expert all-to-all",
    "pp_comm": "traffic between pipeline stages",
    "bubble": "the pipeline bubble",
    "dp_comm": "gradient reduction and ZeRO gathers",
    "optimizer": "the optimizer step",
    "offload": "offload over PCIe and host memory",
    "overhead": "launches and fixed costs",
}
"""Parts of a step in words."""

WORTH_SAYING = 0.01
"""Share of the step below which a part is not mentioned."""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"


def _time(candidate: Candidate) -> str:
    seconds = candidate.step.seconds
    parts = sorted(candidate.step.parts.items(), key=lambda item: -item[1])
    first, first_seconds = parts[0]
    rest = [
        f"{WORDS[name]} {_percent(value / seconds)}"
        for name, value in parts[1:4]
        if value > WORTH_SAYING * seconds
    ]
    name = WORDS[first]
    text = f"{name[0].upper()}{name[1:]} takes {_percent(first_seconds / seconds)} of the step"
    return f"{text}, then {', '.join(rest)}." if rest else f"{text}; the rest is small."


def _memory(candidate: Candidate) -> str:
    memory = candidate.memory
    name, size = max(memory.categories.items(), key=lambda item: item[1])
    where = f"stage {memory.peak_stage}" if candidate.plan.pp > 1 else "every rank"
    phase = memory.peak_phase.replace("_", " and ")
    used = memory.total_bytes / memory.capacity_bytes
    return (
        f"Memory peaks on {where} at {phase}: {memory.total_bytes / GIB:.1f} of "
        f"{memory.capacity_bytes / GIB:.1f} GiB ({_percent(used)}), most of it {name} "
        f"({size / GIB:.1f} GiB); it fits with probability {candidate.fits_probability:.2f}."
    )


def _groups(candidate: Candidate) -> list[str]:
    """Where stages lie on groups of different nodes: how, and which group holds the others up."""
    if not candidate.stages_on:
        return []
    told = ", ".join(
        f"{one.layers} layers in {one.stages} stage{'s' * (one.stages > 1)} on {one.group}"
        for one in candidate.stages_on
    )
    return [
        f"Stages by group of nodes: {told}. Those on {candidate.step.group} set the pace, and "
        f"{candidate.memory.group} is nearest to its memory's limit."
    ]


def difference(candidate: Candidate, other: Candidate) -> Difference:
    """Seconds and bytes of the candidate less those of another."""
    parts = {
        name: seconds - other.step.parts[name] for name, seconds in candidate.step.parts.items()
    }
    return Difference(
        rank=other.rank,
        seconds=candidate.step.seconds - other.step.seconds,
        parts=parts,
        total_bytes=candidate.memory.total_bytes - other.memory.total_bytes,
        plan=changed_knobs(candidate, other),
    )


def changed_knobs(candidate: Candidate, other: Candidate) -> dict[str, tuple[object, object]]:
    """Columns in which two plans differ: (the candidate's value, the other's)."""
    mine, theirs = vars(candidate.plan), vars(other.plan)
    return {
        name: (_plain(value), _plain(theirs[name]))
        for name, value in mine.items()
        if value != theirs[name]
    }


def _plain(value: object) -> object:
    """As JSON has it."""
    if isinstance(value, Placement):
        return str(value) or "none"
    return value.name.lower() if isinstance(value, Enum) else value


def _terms(found: Difference, seconds: float) -> str:
    moved = sorted(found.parts.items(), key=lambda item: -abs(item[1]))
    told = [
        f"{value:+.3g} s {WORDS[name]}" for name, value in moved[:3] if abs(value) > 0.002 * seconds
    ]
    return ", ".join(told) or "no single term stands out"


def _against(candidate: Candidate, found: Difference, what: str) -> str:
    seconds = candidate.step.seconds
    knobs = ", ".join(f"{name} {mine} for {theirs}" for name, (mine, theirs) in found.plan.items())
    if abs(found.seconds) < 1e-9 * seconds and abs(found.total_bytes) < 1:
        return f"The same in every figure as {what} ({knobs}); the simpler of the two goes first."
    if abs(found.seconds) < 0.0005 * seconds:
        less = -found.total_bytes / GIB
        memory = f"{abs(less):.1f} GiB {'less' if less > 0 else 'more'} memory"
        return f"As fast as {what} as far as the model can tell, with {memory} ({knobs})."
    word = "slower" if found.seconds > 0 else "faster"
    share = abs(found.seconds) / (seconds - found.seconds)
    return (
        f"{abs(found.seconds):.3g} s ({_percent(share)}) {word} than {what}: "
        f"{_terms(found, seconds)} ({knobs})."
    )


def explain(
    candidate: Candidate, best: Candidate | None = None, following: Candidate | None = None
) -> Explanation:
    """What bounds a candidate, and how it differs from the best and from the next one."""
    parts = candidate.step.parts
    sentences = [_time(candidate), _memory(candidate), *_groups(candidate)]
    versus_best = versus_next = None
    if best is not None and best.rank != candidate.rank:
        versus_best = difference(candidate, best)
        sentences.append(_against(candidate, versus_best, f"rank {best.rank}"))
    if following is not None:
        versus_next = difference(candidate, following)
        sentences.append(_against(candidate, versus_next, f"rank {following.rank}"))
    if candidate.run is not None:
        cost = "" if candidate.run.usd is None else f" and {candidate.run.usd:,.0f} USD"
        sentences.append(
            f"The token budget takes {candidate.run.days:,.1f} days, "
            f"{candidate.run.gpu_hours:,.0f} GPU hours{cost}."
        )
    return Explanation(
        bound_by=max(parts, key=lambda name: parts[name]),
        sentences=tuple(sentences),
        versus_best=versus_best,
        versus_next=versus_next,
    )


def explained(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """A ranking with every candidate's explanation filled in."""
    following = [*candidates[1:], None] if candidates else []
    return tuple(
        replace(one, why=explain(one, candidates[0], after))
        for one, after in zip(candidates, following, strict=True)
    )
