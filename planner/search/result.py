"""What a search returns: plain data, to be stored and shown."""

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from planner.candidate import Candidate
from planner.explain import Around, WhatIf
from planner.space.axes import AXES
from planner.space.fine import SOLVED

SOLVED_KNOBS = ("recompute_layers", *SOLVED)


@dataclass(frozen=True)
class Certificate:
    """How the answer was found, so that the user knows what it is the best of."""

    enumerated: int
    """Combinations of axis values."""
    legal: int
    """Plans that keep every rule, the refinements of bounded ones not counted."""
    bounded: int
    """Layouts dropped with all their refinements: not even the most frugal one fits."""
    fitting: int
    """Plans that fit as surely as the request demands."""
    solved: int
    """Plans added by solving how many layers to recompute: the fewest with which each fits."""
    by_software: dict[str, int]
    """Legal plans by software."""
    seconds: float
    tuned: int = 0
    """Plans whose fine knobs were solved: those that could enter the ranking."""
    axes: tuple[str, ...] = AXES
    """What was enumerated; nodes, grad_accum and dp follow from each other."""
    solved_knobs: tuple[str, ...] = SOLVED_KNOBS
    """What was solved plan by plan, since it is monotone or depends on the rest of the plan only
    through bounds on memory."""
    exhaustive: bool = True
    """No plan of the space was left out but those that provably do not fit. False over three groups
    of different nodes and more: divisions of the layers far from their speeds are left out."""


@dataclass(frozen=True)
class Change:
    """One change of the request, searched for real, that makes a plan fit."""

    what: str
    """In a sentence, with numbers."""
    patch: dict[str, Any]
    """JSON merge patch (RFC 7396) of the request."""
    candidate: Candidate
    """The best plan of the changed request."""


@dataclass(frozen=True)
class NothingFits:
    """Why nothing fits, and what would."""

    nearest: tuple[Candidate, ...]
    """Plans that miss by the fewest bytes, nearest first."""
    missing_bytes: float
    """What the nearest one misses on the worst rank (or its host)."""
    late_days: float
    """Days that the quickest plan needs beyond the deadline; 0 where memory is what is missing."""
    why: str
    """What stands in the way of the nearest plan, in a sentence."""
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class SearchResult:
    """Ranked plans with the certificate."""

    candidates: tuple[Candidate, ...]
    certificate: Certificate
    nothing_fits: NothingFits | None = None
    seq_len: int | None = None
    """For largest_sequence: the longest sequence for which a plan fits."""
    baseline: Candidate | None = None
    """The rule of thumb: TP until it fits, then PP, then DP."""
    around: Around | None = None
    """The user's own plan, where the request has one."""
    notes: tuple[str, ...] = ()
    """What was not searched, and why."""
    what_if: tuple[WhatIf, ...] = ()
    """How the answer changes with the world, where the request asks for it."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dict(_ADAPTER.dump_python(self, mode="json"))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SearchResult":
        """The inverse of `to_json`."""
        return _ADAPTER.validate_python(data)


_ADAPTER = TypeAdapter(SearchResult)
