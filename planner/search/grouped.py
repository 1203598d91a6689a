"""Searches every group of unequal nodes alone, and every union that can run as one."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cost_model.specs import ClusterSpec
from planner.candidate import Candidate
from planner.explain import WhatIf, explained, what_if
from planner.groups import options, reordered
from planner.objectives import candidate_key, pareto_front
from planner.options import on_option
from planner.request.request import Resolved
from planner.search.result import Certificate, NothingFits, SearchResult
from planner.space.emptiness import has_plan
from planner.space.placements import PAIR

GOVERNED = (
    "A plan whose ranks mix groups of nodes runs at the pace of the slowest. A pipeline may have "
    "each stage on one group, with more layers on the faster one: such a plan has a placement, and "
    "its hosts must be listed in the order of its cluster's name."
)
UNEVEN_BATCHES = (
    "Not planned: more sequences for the ranks of a faster group. DeepSpeed and Megatron have one "
    "micro-batch and one accumulation for all ranks: DeepSpeed refuses others where "
    "train_batch_size is given (runtime/config.py:602), and else averages the means of the ranks, "
    "so that sequences of the larger batches would count for less."
)


SearchOne = Callable[[Resolved], SearchResult]


def search_groups(
    resolved: Resolved,
    search_one: SearchOne,
    diagnose: Callable[[Resolved], NothingFits] | None = None,
) -> SearchResult:
    """One ranking over all options; each candidate names the nodes it runs on.

    diagnose: says of an option why nothing fits, and what would.
    """
    found = options(resolved.groups)
    asked = _asked(resolved)
    whole, most = max(asked, key=lambda pair: pair[0].gpus)
    results = [
        (cluster, search_one(one if cluster is whole else _alone(one))) for cluster, one in asked
    ]
    longest = max((result.seq_len or 0 for _, result in results), default=0)
    results = [pair for pair in results if (pair[1].seq_len or 0) == longest]
    ranked = sorted(
        (
            replace(c, cluster=cluster.name)
            for cluster, result in results
            for c in result.candidates
            # in another order of the groups only what depends on the order is new
            if c.plan.placement or not reordered(cluster, resolved.groups)
        ),
        key=lambda c: candidate_key(resolved.search, c),
    )
    thumbs = [result.baseline for _, result in results if result.baseline is not None]
    largest = max(results, key=lambda pair: pair[0].gpus)[1]
    if resolved.search.objective == "pareto":
        ranked = _front(ranked)
    keep = len(ranked) if resolved.search.objective == "pareto" else resolved.search.keep
    kept = [replace(c, rank=i + 1) for i, c in enumerate(_best_placements(ranked)[:keep])]
    unions = [f"Not planned: {reason}." for reason in found.refused]
    return SearchResult(
        explained(kept),
        _summed(
            [result.certificate for _, result in results],
            exhaustive=all(len(cluster.groups) <= PAIR for cluster, _ in results),
        ),
        nothing_fits=None if kept or diagnose is None else diagnose(most),
        seq_len=longest or None,
        baseline=min(thumbs, key=_seconds, default=None),
        around=largest.around,
        notes=(GOVERNED, UNEVEN_BATCHES, *unions, *largest.notes),
        what_if=_what_if(resolved, kept, search_one),
    )


def _asked(resolved: Resolved) -> list[tuple[ClusterSpec, Resolved]]:
    """The clusters on which there is a legal plan, and the request on each."""
    every = [(c, on_option(resolved, c)) for c in options(resolved.groups).clusters]
    return [(c, one) for c, one in every if has_plan(one.world, one.search)]


def _what_if(
    resolved: Resolved, kept: Sequence[Candidate], search_one: SearchOne
) -> tuple[WhatIf, ...]:
    def best_of(changed: Resolved) -> Candidate | None:
        if not _asked(changed):
            return None
        return next(iter(search_groups(changed, search_one).candidates), None)

    if not (kept and resolved.search.what_if):
        return ()
    return what_if(resolved, kept[0], best_of)


def _front(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that no other one of any option beats in step time, free memory and
    GPU-seconds."""
    if not ranked:
        return []
    points = [(c.step.seconds, -c.memory.headroom_bytes, c.step.seconds * c.gpus) for c in ranked]
    return [ranked[row] for row in np.flatnonzero(pareto_front(np.array(points))).tolist()]


def _best_placements(ranked: Sequence[Candidate]) -> list[Candidate]:
    """Of plans that differ in nothing but how stages and layers lie on the groups, the first."""
    seen, kept = set(), []
    for one in ranked:
        moved = {"placement": 0, "last_stage_layers": 0} if one.plan.placement else {}
        key = one.plan.model_copy(update=moved)
        if not moved or key not in seen:
            kept.append(one)
        seen.add(key)
    return kept


def _seconds(candidate: Candidate) -> float:
    return candidate.step.seconds


def _alone(resolved: Resolved) -> Resolved:
    """Without the user's own plan, which is judged on all groups together."""
    search = resolved.search.model_copy(update={"around": None})
    return replace(resolved, search=search)


def _summed(certificates: list[Certificate], *, exhaustive: bool) -> Certificate:
    """exhaustive: whether every division of the layers over groups was tried."""
    by_software: dict[str, int] = {}
    for one in certificates:
        for name, count in one.by_software.items():
            by_software[name] = by_software.get(name, 0) + count
    return Certificate(
        enumerated=sum(c.enumerated for c in certificates),
        legal=sum(c.legal for c in certificates),
        bounded=sum(c.bounded for c in certificates),
        fitting=sum(c.fitting for c in certificates),
        solved=sum(c.solved for c in certificates),
        by_software=by_software,
        tuned=sum(c.tuned for c in certificates),
        seconds=sum(c.seconds for c in certificates),
        exhaustive=exhaustive,
    )
