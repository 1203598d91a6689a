"""Searches every group of unequal nodes alone, and every union that can run as one."""

from collections.abc import Callable
from dataclasses import replace

from cost_model.specs import ClusterSpec
from planner.candidate import Candidate
from planner.explain import explained
from planner.groups import options
from planner.objectives import candidate_key
from planner.request.request import Resolved
from planner.request.search import Limit
from planner.search.result import Certificate, SearchResult
from planner.space.emptiness import has_plan

GOVERNED = (
    "A plan over several groups runs at the pace of the slowest: DeepSpeed gives every rank the "
    "same micro-batch and every pipeline stage its even share of the layers, so uneven batches and "
    "stages are not planned."
)


def search_groups(
    resolved: Resolved, search_one: Callable[[Resolved], SearchResult]
) -> SearchResult:
    """One ranking over all options; each candidate names the nodes it runs on."""
    found = options(resolved.groups)
    results = [
        (cluster, search_one(one))
        for cluster in found.clusters
        for one in [_on(resolved, cluster)]
        if has_plan(one.world, one.search)
    ]
    ranked = sorted(
        (
            replace(c, cluster=cluster.name)
            for cluster, result in results
            for c in result.candidates
        ),
        key=lambda c: candidate_key(resolved.search, c),
    )
    kept = [replace(c, rank=i + 1) for i, c in enumerate(ranked[: resolved.search.keep])]
    thumbs = [result.baseline for _, result in results if result.baseline is not None]
    largest = max(results, key=lambda pair: pair[0].gpus)[1]
    unions = [f"Not planned: {reason}." for reason in found.refused]
    return SearchResult(
        explained(kept),
        _summed([result.certificate for _, result in results]),
        nothing_fits=None if kept else largest.nothing_fits,
        baseline=min(thumbs, key=_seconds, default=None),
        around=largest.around,
        notes=(GOVERNED, *unions, *largest.notes),
        what_if=largest.what_if,
    )


def _seconds(candidate: Candidate) -> float:
    return candidate.step.seconds


def _on(resolved: Resolved, cluster: ClusterSpec) -> Resolved:
    """The request on one option; a union is used whole, since its parts are options too."""
    search = resolved.search
    if cluster not in resolved.groups:
        whole = Limit(values=(cluster.nodes,))
        limit = search.limits.get("nodes")
        both = whole if limit is None else whole.and_also(limit)
        search = search.model_copy(update={"limits": search.limits | {"nodes": both}})
    return replace(resolved, cluster=cluster, search=search, groups=())


def _summed(certificates: list[Certificate]) -> Certificate:
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
    )
