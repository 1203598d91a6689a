"""Requests for plans as the routes show them."""

from typing import Any

from pydantic import BaseModel

from api.schemas.campaigns import Calibration
from api.schemas.candidates import CandidateItem
from api.schemas.explain import Explained
from api.schemas.jobs import JobResource, job_fields
from api.store import PlanRecord
from planner.candidate import Candidate
from planner.explain import Around, WhatIf
from planner.search import NothingFits


class PlanLinks(BaseModel):
    """Where to go from a request."""

    self: str
    candidates: str
    explain: str
    """Why not another plan: knobs as parameters."""
    trials: str
    """POST there to try candidates."""
    campaigns: str
    """POST there to verify the best by trials and learn from them."""
    events: str
    cancel: str
    page: str
    """For people."""


class Progress(BaseModel):
    """How far the search is."""

    evaluated: int
    """Plans predicted."""
    known: int
    """Legal plans enumerated so far; grows while the search runs."""


class PlanResult(BaseModel):
    """What the search found."""

    kept: int
    """Candidates that can be paged through."""
    best: CandidateItem | None
    """The first of them; null where nothing fits."""
    nothing_fits: NothingFits | None = None
    """The nearest plans, how many bytes they miss, and the changes that make one fit."""
    seq_len: int | None = None
    """For largest_sequence: the longest sequence for which a plan fits."""
    baseline: Candidate | None = None
    """The rule of thumb: TP until it fits, then PP, then DP."""
    around: Around | None = None
    """The request's own plan and the cheapest changes that improve it."""
    what_if: list[WhatIf] = []
    """How the answer changes with the world, where the request asks for it."""
    notes: list[str] = []
    """What was not searched, and why."""


class PlanResource(JobResource):
    """One request for plans."""

    summary: dict[str, Any]
    """What the request resolved to."""
    request: dict[str, Any]
    """As it was sent."""
    progress: Progress | None
    result: PlanResult | None
    certificate: dict[str, Any] | None
    """How many plans were enumerated, legal, evaluated and fitting."""
    calibration: Calibration | None = None
    """What trials on such a cluster had taught, where the search uses it."""
    explanation: Explained | None = None
    """Why not the partial plan that `?explain=` names."""
    links: PlanLinks

    @classmethod
    def of(cls, record: PlanRecord, best: CandidateItem | None = None) -> "PlanResource":
        """From what is stored."""
        result = dict(record.result) if record.result is not None else None
        certificate = None if result is None else result.pop("certificate", None)
        own = f"/v1/plans/{record.id}"
        return cls(
            **job_fields(record),
            summary=record.summary,
            calibration=Calibration.of(record.calibration),
            request=record.request,
            progress=None if record.progress is None else Progress(**record.progress),
            result=None if result is None else PlanResult(best=best, **result),
            certificate=certificate,
            links=PlanLinks(
                self=own,
                candidates=f"{own}/candidates",
                explain=f"{own}/explain",
                trials=f"{own}/trials",
                campaigns=f"{own}/campaigns",
                events=f"{own}/events",
                cancel=f"{own}/cancel",
                page=f"/plans/{record.id}",
            ),
        )


class PlanPage(BaseModel):
    """One page of requests, the newest first."""

    items: list[PlanResource]
    next: str | None
    """Where the next page is; null on the last one."""
