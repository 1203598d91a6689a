"""How a trial ended, as data: what went wrong teaches as much as what went well. No torch here."""

import re
from collections.abc import Mapping
from typing import Literal

from cost_model.specs.frozen import Frozen

Kind = Literal[
    "ok",
    "out_of_gpu_memory",
    "out_of_host_memory",
    "collective_timeout",
    "hang",
    "refused",
    "not_a_number",
    "pruned",
    "cancelled",
    "launch_failure",
    "crashed",
]


class Outcome(Frozen):
    """The end of a trial."""

    kind: Kind
    message: str = ""
    phase: str | None = None
    """load, init, forward, backward, step: where it ended."""
    rank: int | None = None
    """The rank that failed first, or that was late."""
    asked_bytes: int | None = None
    """What the failed allocation asked for."""
    free_bytes: int | None = None
    """What there was."""


_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_ASKED = re.compile(r"Tried to allocate ([\d.]+) ([KMGT]iB|bytes)")
_FREE = re.compile(r"of which ([\d.]+) ([KMGT]iB|bytes) is free")
_CPU_ASKED = re.compile(r"you tried to allocate (\d+) bytes")
_LATE = re.compile(
    r"[Rr]ank\s*\[?(\d+)\]?.{0,80}?(?:did not|failed to) (?:join|reach|report|pass)", re.DOTALL
)

_SIGKILL = (-9, 137)
ENDED_HERE = 256
"""In place of an exit code, which has eight bits: the supervisor ended this rank itself."""


def _bytes(found: re.Match[str] | None) -> int | None:
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])


def of_error(error_type: str, message: str, phase: str | None, rank: int | None) -> Outcome:
    """The outcome of an exception in a worker."""
    text = f"{error_type}: {message}"
    kind: Kind = "crashed"
    asked = free = None
    if "OutOfMemory" in error_type or ("out of memory" in message and "allocate" in message):
        kind, asked, free = "out_of_gpu_memory", _bytes(_ASKED.search(message)), None
        free = _bytes(_FREE.search(message))
    elif "DefaultCPUAllocator" in message or error_type == "MemoryError":
        kind = "out_of_host_memory"
        bare = _CPU_ASKED.search(message)
        asked = int(bare[1]) if bare else None
    elif is_collective_timeout(message):
        kind = "collective_timeout"
        late = _LATE.search(message)
        rank = int(late[1]) if late else rank
    elif error_type == "Refused" or (
        phase in ("load", "init")
        and error_type
        in (
            *("AssertionError", "ValueError", "DeepSpeedConfigError", "ValidationError"),
            *("TypeError", "NotImplementedError", "UnsupportedModel"),
        )
    ):
        kind = "refused"
    return Outcome(
        kind=kind,
        message=text[:2000],
        phase=phase,
        rank=rank,
        asked_bytes=asked,
        free_bytes=free,
    )


def is_collective_timeout(message: str) -> bool:
    """Whether an error says that a collective waited too long for a peer."""
    low = message.lower()
    return ("timed out" in low or "timeout" in low) and any(
        word in low
        for word in ("gloo", "nccl", "watchdog", "collective", "store", "barrier", "waiting for")
    )


def is_lost_peer(message: str) -> bool:
    """Whether an error only says that another rank is gone: that rank's error is the cause."""
    low = message.lower()
    return any(
        word in low
        for word in ("connection reset", "connection closed", "connection refused", "broken pipe")
    )


def of_exit_code(code: int, rank: int | None, log_tail: str) -> Outcome:
    """The outcome of a rank that left no result."""
    if code in _SIGKILL:
        message = "killed with signal 9: the kernel's answer to exhausted host memory"
        return Outcome(kind="out_of_host_memory", message=message, rank=rank)
    if code == ENDED_HERE:
        message = "ended because another rank had failed or time was up"
        return Outcome(kind="cancelled", message=message, rank=rank)
    if is_collective_timeout(log_tail):
        return Outcome(kind="collective_timeout", message=log_tail[-2000:], rank=rank)
    return Outcome(kind="crashed", message=f"exit code {code}: {log_tail[-2000:]}", rank=rank)


def first_cause(outcomes: list[Outcome]) -> Outcome:
    """Of the ranks' outcomes the one that explains the others.

    Ranks that only lost a peer, or waited for it, come last; out of memory comes first.
    """
    order = {"out_of_gpu_memory": 0, "out_of_host_memory": 1, "not_a_number": 2, "refused": 2}

    def weight(outcome: Outcome) -> tuple[int, int]:
        if outcome.kind in ("ok", "cancelled"):
            return (9, 0)
        if is_lost_peer(outcome.message):
            return (8, outcome.rank or 0)
        late = 7 if outcome.kind == "collective_timeout" else 5
        return (order.get(outcome.kind, late), outcome.rank or 0)

    return min(outcomes, key=weight)


def late_rank(outcomes: Mapping[int, Outcome], progress: Mapping[int, int]) -> int | None:
    """The rank for which the others waited until their collective timed out.

    outcomes and progress: by rank; progress counts the phases that a rank has entered. The rank
    that an error names; else, of those that waited for nobody, the one that came least far; else
    the one that is behind all others. None where nothing tells.
    """
    waited = {rank for rank, o in outcomes.items() if o.kind == "collective_timeout"}
    for rank in sorted(waited):
        named = _LATE.search(outcomes[rank].message)
        if named:
            return int(named[1])
    others = [rank for rank in progress if rank not in waited]
    if others:
        return min(others, key=lambda rank: (progress[rank], rank))
    behind = min(progress, key=lambda rank: (progress[rank], rank), default=None)
    if behind is None or list(progress.values()).count(progress[behind]) > 1:
        return None
    return behind
