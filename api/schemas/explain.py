"""The answer to "why not X"."""

from typing import Any

from pydantic import BaseModel

from planner.candidate import Candidate, Difference
from planner.explain import WhyNot
from planner.explain.why_not import Verdict


class Explained(BaseModel):
    """Why a partial plan is not the best of a request."""

    asked: dict[str, Any]
    """The partial plan."""
    verdict: Verdict
    sentences: list[str]
    """The rule that it breaks, what does not fit, or where the time goes."""
    missing_bytes: float
    """What the nearest such plan misses on its worst rank; 0 where one fits."""
    seconds_lost: float
    """Seconds a step that the best such plan takes beyond the best plan of the request."""
    seconds_lost_by_term: dict[str, float]
    """The same by part of the step; they sum to it."""
    candidate: Candidate | None
    """The best such plan, or the nearest where none fits; null where a rule forbids all of them."""
    versus_best: Difference | None

    @classmethod
    def of(cls, found: WhyNot) -> "Explained":
        """From the planner's answer."""
        lost = found.versus_best
        return cls(
            asked=found.asked,
            verdict=found.verdict,
            sentences=list(found.sentences),
            missing_bytes=found.missing_bytes,
            seconds_lost=0.0 if lost is None else lost.seconds,
            seconds_lost_by_term={} if lost is None else lost.parts,
            candidate=found.candidate,
            versus_best=lost,
        )
