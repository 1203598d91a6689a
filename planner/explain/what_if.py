"""How the answer changes with the world: one more node, half the bandwidth, twice the sequence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from cost_model.specs import ClusterSpec
from planner.candidate import Candidate, candidate
from planner.explain.why import changed_knobs
from planner.groups import as_request
from planner.ranking import evaluate, rank
from planner.request.request import Resolved
from planner.space.emptiness import has_plan


@dataclass(frozen=True)
class WhatIf:
    """The best plan of a changed world."""

    what: str
    patch: dict[str, Any]
    """JSON merge patch of the request."""
    sentence: str
    candidate: Candidate | None
    """None where nothing is legal or fits."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dict(_ADAPTER.dump_python(self, mode="json"))


_ADAPTER = TypeAdapter(WhatIf)


Changed = tuple[str, dict[str, Any], Resolved]
"""What is changed, as a merge patch of the request too, and the request changed."""


def _worlds(resolved: Resolved) -> Iterator[Changed]:
    cluster = resolved.cluster
    for nodes, what in (
        (cluster.nodes + 1, "one more node"),
        (2 * cluster.nodes, "twice the nodes"),
    ):
        more = cluster.model_copy(update={"nodes": nodes})
        yield what, {"cluster": {"nodes": nodes}}, replace(resolved, cluster=more)
    network = cluster.network
    slow = network.model_copy(update={"gbps_per_port": network.gbps_per_port / 2})
    if cluster.nodes > 1:
        yield (
            "half the network bandwidth",
            {"cluster": {"network": slow.model_dump()}},
            replace(resolved, cluster=cluster.model_copy(update={"network": slow})),
        )
    yield from _longer(resolved)


def _longer(resolved: Resolved) -> Iterator[Changed]:
    limit, training = resolved.model.max_seq_len, resolved.training
    if limit is None or 2 * training.seq_len <= limit:
        longer = training.model_copy(
            update={
                "seq_len": 2 * training.seq_len,
                "global_batch": max(1, training.global_batch // 2),
            }
        )
        patch = {"training": {"seq_len": longer.seq_len, "global_batch": longer.global_batch}}
        yield (
            "twice the sequence at the same tokens a step",
            patch,
            replace(resolved, training=longer),
        )


def _worlds_of_groups(resolved: Resolved) -> Iterator[Changed]:
    """The same where groups of nodes differ: one more node of each."""
    groups = resolved.groups

    def changed(several: tuple[ClusterSpec, ...]) -> tuple[dict[str, Any], Resolved]:
        patch = {"cluster": {"groups": [as_request(group) for group in several]}}
        return patch, replace(resolved, groups=several)

    for number, group in enumerate(groups):
        more = group.model_copy(update={"nodes": group.nodes + 1})
        yield (
            f"one more node of {group.name}",
            *changed((*groups[:number], more, *groups[number + 1 :])),
        )
    slow = tuple(
        g.model_copy(
            update={
                "network": g.network.model_copy(
                    update={"gbps_per_port": g.network.gbps_per_port / 2}
                )
            }
        )
        for g in groups
    )
    yield "half the network bandwidth", *changed(slow)
    yield from _longer(resolved)


Best = Callable[[Resolved], Candidate | None]
"""The best plan of a request; None where nothing is legal or fits."""


def what_if(resolved: Resolved, best: Candidate, best_of: Best | None = None) -> tuple[WhatIf, ...]:
    """Searches each changed world; `best` is the answer to the request itself.

    best_of: searches one of them; by default as of equal nodes.
    """
    worlds = _worlds_of_groups(resolved) if resolved.groups else _worlds(resolved)
    found = []
    for what, patch, changed in worlds:
        search = changed.search.model_copy(
            update={"keep": 1, "objective": "throughput", "what_if": False, "around": None}
        )
        answer = (best_of or _best)(replace(changed, search=search))
        found.append(_answer(what, patch, answer, best))
    return tuple(found)


def _best(resolved: Resolved) -> Candidate | None:
    world, search = resolved.world, resolved.search
    table = rank(resolved).table if has_plan(world, search) else None
    if table is None or not len(table):
        return None
    return candidate(world, table, evaluate(world, table), 0, rank=1)


def _answer(what: str, patch: dict[str, Any], found: Candidate | None, best: Candidate) -> WhatIf:
    if found is None:
        return WhatIf(what, patch, f"With {what} no plan fits.", None)
    rate = found.step.tokens_per_s / best.step.tokens_per_s
    changed = changed_knobs(found, best)
    told = ", ".join(
        f"{n} {new if isinstance(new, bool) else new or 'none'}"
        for n, (new, _) in changed.items()
        if n != "grad_accum"
    )
    plan = f"with {told}" if told else "with the same plan"
    if found.cluster and found.cluster != best.cluster:
        plan = f"{plan}, on {found.cluster}"
    sentence = f"With {what} the best plan trains {rate:.2f} times the tokens a second, {plan}."
    return WhatIf(what, patch, sentence, found)
