"""How the answer changes with the world: one more node, half the bandwidth, twice the sequence."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from planner.candidate import Candidate, candidate
from planner.explain.why import changed_knobs
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


def _worlds(resolved: Resolved) -> Iterator[tuple[str, dict[str, Any], Resolved]]:
    cluster, training = resolved.cluster, resolved.training
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
    limit = resolved.model.max_seq_len
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


def what_if(resolved: Resolved, best: Candidate) -> tuple[WhatIf, ...]:
    """Searches each changed world; `best` is the answer to the request itself."""
    return tuple(_answer(what, patch, changed, best) for what, patch, changed in _worlds(resolved))


def _answer(what: str, patch: dict[str, Any], resolved: Resolved, best: Candidate) -> WhatIf:
    search = resolved.search.model_copy(update={"keep": 1, "objective": "throughput"})
    asked = replace(resolved, search=search)
    table = rank(asked).table if has_plan(asked.world, search) else None
    if table is None or not len(table):
        return WhatIf(what, patch, f"With {what} no plan fits.", None)
    found = candidate(asked.world, table, evaluate(asked.world, table), 0, rank=1)
    rate = found.step.tokens_per_s / best.step.tokens_per_s
    changed = changed_knobs(found, best)
    told = ", ".join(f"{n} {new}" for n, (new, _) in changed.items() if n != "grad_accum")
    plan = f"with {told}" if told else "with the same plan"
    sentence = f"With {what} the best plan trains {rate:.2f} times the tokens a second, {plan}."
    return WhatIf(what, patch, sentence, found)
