"""What a stored request resolves to: the world that its candidates were judged against."""

from dataclasses import replace

from api.calibrated import calibrated
from api.store import CandidateRecord, PlanRecord
from planner.candidate import Candidate
from planner.groups import options
from planner.request import PlanRequest, Resolved
from planner.search.longest import at_length


def resolved_of(plan: PlanRecord) -> Resolved:
    """The request of a record as it was searched: calibrated, at the length it settled on."""
    resolved = calibrated(PlanRequest.parse(plan.request).resolve(), plan.calibration)
    longest = (plan.result or {}).get("seq_len")
    return resolved if longest is None else at_length(resolved, longest)


def resolved_for(plan: PlanRecord, candidate: CandidateRecord) -> Resolved:
    """The same on the nodes of a candidate, where the cluster has groups of different ones."""
    resolved = resolved_of(plan)
    name = candidate.prediction.detail.get("cluster")
    if not name or not resolved.groups:
        return resolved
    found = next(c for c in options(resolved.groups).clusters if c.name == name)
    return replace(resolved, cluster=found, groups=())


def planned(candidate: CandidateRecord | None) -> Candidate | None:
    """The planner's candidate of what is stored."""
    if candidate is None:
        return None
    return Candidate.from_json(candidate.prediction.detail | {"plan": candidate.plan})
