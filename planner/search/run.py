"""The search: rank, certify, and where nothing fits say what would."""

from dataclasses import dataclass, replace
from math import ceil
from time import perf_counter
from typing import Any

from pydantic import TypeAdapter

from cost_model.plans import Plan, PlanTable
from planner.baseline import RuleOfThumb
from planner.candidate import GIB, Candidate, candidate
from planner.candidate import candidates as as_candidates
from planner.explain import around, explain, explained, what_if
from planner.ranking import Progress, evaluate, nearest, rank
from planner.request.request import Resolved
from planner.rows import join
from planner.rules import Violation, World, violations
from planner.search.changes import changes
from planner.search.grouped import search_groups
from planner.search.longest import at_length, longest_sequence
from planner.search.result import Certificate, Change, NothingFits, SearchResult
from planner.search.simplest import simpler

NEAREST = 5


def search(resolved: Resolved, progress: Progress | None = None) -> SearchResult:
    """Predicts every legal plan, ranks those that fit, and certifies the count.

    progress: called with plans evaluated and plans known so far, once per block. Never raises
    when nothing fits: then `nothing_fits` holds the nearest plans and what would change it. With
    the objective largest_sequence the ranking is that of the longest sequence that fits.
    """
    if not resolved.groups:
        return _longest(resolved, progress, diagnose=True)
    return search_groups(
        resolved, lambda one: _longest(one, progress, diagnose=False), _nothing_fits
    )


def _longest(resolved: Resolved, progress: Progress | None, *, diagnose: bool) -> SearchResult:
    """The search, at the longest sequence where that is the objective."""
    longest = None
    if resolved.search.objective == "largest_sequence":
        longest = longest_sequence(resolved)
    if longest is None:
        return _search(resolved, progress, diagnose)
    found = _search(at_length(resolved, longest), progress, diagnose)
    return replace(found, seq_len=longest)


def _search(resolved: Resolved, progress: Progress | None, diagnose: bool) -> SearchResult:
    """diagnose: whether to find out what would make a plan fit, where none does."""
    started = perf_counter()
    thumb = RuleOfThumb(resolved)
    ranked = rank(resolved, progress, thumb.observe)
    # The rule's plan goes last: one prediction serves all.
    count = len(ranked.table)
    every = _candidates(resolved.world, join([ranked.table, thumb.best()]), count)
    candidates = explained(every[:count])
    certificate = Certificate(
        enumerated=ranked.enumerated,
        legal=ranked.legal,
        bounded=ranked.bounded,
        fitting=ranked.fitting,
        solved=ranked.solved,
        by_software=ranked.by_software,
        tuned=ranked.tuned,
        seconds=perf_counter() - started,
    )
    options = resolved.search
    return SearchResult(
        candidates,
        certificate,
        nothing_fits=_nothing_fits(resolved) if diagnose and not candidates else None,
        baseline=every[count] if len(every) > count else None,
        around=None if options.around is None else around(resolved, options.around),
        notes=_notes(resolved, candidates),
        what_if=what_if(resolved, candidates[0]) if candidates and options.what_if else (),
    )


ROUTER = (
    "The weight of the router's entropy bonus changes what is learned and no step time: trials "
    "search it."
)
DROPPED = (
    "No capacity factor is tried, since tokens over it are not trained on; "
    "search.allow.token_dropping tries them."
)

IDLE = 0.05
"""MFU below which a note says that the batch is too small for the GPUs."""


def _too_few_sequences(resolved: Resolved, candidates: tuple[Candidate, ...]) -> str | None:
    """Where not every GPU has a sequence of its own, and the plan shows it; None elsewhere."""
    batch = resolved.training.global_batch
    best = next(iter(candidates), None)
    if best is None or best.step.mfu >= IDLE or batch >= best.gpus:
        return None
    return (
        f"The best plan reaches an MFU of {100 * best.step.mfu:.2g} %: {batch} sequences a step "
        f"are too few for {best.gpus} GPUs. More sequences a step would use them."
    )


def _notes(resolved: Resolved, candidates: tuple[Candidate, ...]) -> tuple[str, ...]:
    by_time = resolved.search.objective in ("throughput", "latency")
    plain = simpler(candidates) if by_time else None
    few = _too_few_sequences(resolved, candidates)
    notes = (*resolved.notes, *(note for note in (plain, few) if note is not None))
    if not resolved.model.is_moe:
        return notes
    free = resolved.search.allow.token_dropping or "capacity_factor" in resolved.search.fixed
    return (*notes, ROUTER) if free else (*notes, ROUTER, DROPPED)


def _candidates(world: World, table: PlanTable, ranked: int = 0) -> tuple[Candidate, ...]:
    """Full predictions of few plans, the first of them ranked."""
    if not len(table):
        return ()
    return tuple(as_candidates(world, table, evaluate(world, table), ranked))


def _nothing_fits(resolved: Resolved) -> NothingFits:
    late = _too_late(resolved)
    if late is not None:
        return late
    table, missing = nearest(resolved, NEAREST)
    near = _candidates(resolved.world, table)
    return _with_changes(
        resolved, NothingFits(near, float(missing[0]), 0.0, _obstacle(resolved, near[0]), ())
    )


NO_CHANGE = "No single change of the request that was searched makes one fit."


def _with_changes(resolved: Resolved, found: NothingFits) -> NothingFits:
    helpful = changes(resolved)
    why = found.why if helpful else f"{found.why} {NO_CHANGE}"
    return replace(found, why=why, changes=helpful)


def _obstacle(resolved: Resolved, near: Candidate) -> str:
    memory, options = near.memory, resolved.search
    found = []
    if memory.total_bytes + options.headroom_gib * GIB > memory.capacity_bytes:
        missing = memory.total_bytes + options.headroom_gib * GIB - memory.capacity_bytes
        name, size = max(memory.categories.items(), key=lambda item: item[1])
        found.append(
            f"The nearest plan misses {missing / GIB:.1f} GiB on stage {memory.peak_stage} at "
            f"{memory.peak_phase}: it needs {memory.total_bytes / GIB:.1f} of "
            f"{memory.capacity_bytes / GIB:.1f} GiB, {size / GIB:.1f} of them {name}."
        )
    if memory.host_bytes > memory.host_capacity_bytes:
        subject = "It also needs" if found else "The nearest plan needs"
        found.append(
            f"{subject} {memory.host_bytes / GIB:.0f} GiB of host RAM, and a node has "
            f"{memory.host_capacity_bytes / GIB:.0f}."
        )
    return " ".join(found) or (
        f"The nearest plan fits with a probability of {near.fits_probability:.2f} "
        f"({memory.total_bytes / GIB:.1f} of {memory.capacity_bytes / GIB:.1f} GiB of a GPU, "
        f"{memory.host_bytes / GIB:.0f} of {memory.host_capacity_bytes / GIB:.0f} GiB of a host), "
        f"and {options.min_fits_probability:.2f} is demanded."
    )


def _too_late(resolved: Resolved) -> NothingFits | None:
    """Where plans fit and none meets the deadline: the quickest, and by how much they are late."""
    deadline = resolved.search.deadline_days
    if deadline is None:
        return None
    free = {"deadline_days": None, "objective": "throughput", "keep": NEAREST}
    unhurried = replace(resolved, search=resolved.search.model_copy(update=free))
    quickest = _candidates(resolved.world, rank(unhurried).table)
    if not quickest or quickest[0].run is None:
        return None
    late = quickest[0].run.days - deadline
    needed, over = (f"{d:,.0f}" if d >= 100 else f"{d:.3g}" for d in (late + deadline, late))
    why = f"The quickest plan needs {needed} days, {over} over the deadline of {deadline:g}."
    needed_days = quickest[0].run.days
    helpful = changes(resolved, needed_days / deadline)
    later = _later(needed_days, deadline, quickest[0])
    return NothingFits(quickest, 0.0, late, why, (*helpful, later))


def _later(days: float, deadline: float, quickest: Candidate) -> Change:
    """The deadline that the quickest plan meets, in whole hundredths of a day."""
    enough = ceil(100 * days) / 100
    return Change(
        f"allow {enough:,.2f} days instead of {deadline:g}: what the quickest plan takes",
        {"search": {"deadline_days": enough}},
        quickest,
    )


@dataclass(frozen=True)
class Predicted:
    """One plan, predicted, with the rules it breaks."""

    candidate: Candidate
    violations: tuple[Violation, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dict(_ADAPTER.dump_python(self, mode="json"))


_ADAPTER = TypeAdapter(Predicted)


def predict_one(resolved: Resolved, plan: Plan) -> Predicted:
    """Memory and time of one plan, legal or not."""
    world = resolved.world
    table = PlanTable.from_plans([plan])
    one = candidate(world, table, evaluate(world, table), 0)
    one = replace(one, why=explain(one))
    return Predicted(one, tuple(violations(world, plan)))
