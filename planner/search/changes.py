"""The smallest changes that make a plan fit: each is searched for real on the changed request."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from cost_model.flops import step_flops
from cost_model.specs import Lora
from planner.candidate import GIB, SECONDS_PER_DAY, Candidate, candidate
from planner.ranking import evaluate, rank
from planner.request.request import Resolved
from planner.search.result import Change
from planner.space.emptiness import has_plan

MOST_NODES = 4096
EVEN_ODDS = 0.5
FINEST = 64
"""The nodes that are missing are found to one part in so many."""


@dataclass(frozen=True)
class _Trial:
    what: str
    patch: dict[str, Any]
    resolved: Resolved


def _best(resolved: Resolved) -> Candidate | None:
    one = replace(resolved, search=resolved.search.model_copy(update={"keep": 1}))
    if not has_plan(one.world, one.search):
        return None
    ranked = rank(one)
    if not len(ranked.table):
        return None
    prediction = evaluate(one.world, ranked.table)
    return candidate(one.world, ranked.table, prediction, 0, rank=1)


def _summary(best: Candidate) -> str:
    plan, memory = best.plan, best.memory
    return (
        f"then {plan.software.name.lower()} with ZeRO {plan.zero_stage}, tp={plan.tp}, "
        f"pp={plan.pp}, dp={plan.dp} fits in {memory.total_bytes / GIB:.1f} of "
        f"{memory.capacity_bytes / GIB:.1f} GiB at {best.step.seconds:.1f} s a step"
    )


def _offload(resolved: Resolved) -> Iterator[_Trial]:
    allow = resolved.search.allow
    for name in ("offload", "nvme", "recompute", "zero", "tp", "pp", "sp", "chunked_loss"):
        if not getattr(allow, name):
            more = allow.model_copy(update={name: True})
            search = resolved.search.model_copy(update={"allow": more})
            yield _Trial(
                f"allow {name}",
                {"search": {"allow": {name: True}}},
                replace(resolved, search=search),
            )


def _risk(resolved: Resolved) -> Iterator[_Trial]:
    if resolved.search.min_fits_probability > EVEN_ODDS:
        search = resolved.search.model_copy(update={"min_fits_probability": EVEN_ODDS})
        yield _Trial(
            f"accept a plan that fits with probability {EVEN_ODDS} instead of "
            f"{resolved.search.min_fits_probability}, and try it with a dry run first",
            {"search": {"min_fits_probability": EVEN_ODDS}},
            replace(resolved, search=search),
        )


def _lora(resolved: Resolved) -> Iterator[_Trial]:
    if resolved.training.lora is None:
        for quantized in (False, True):
            training = resolved.training.model_copy(update={"lora": Lora(quantized_base=quantized)})
            name = "QLoRA (4-bit base)" if quantized else "LoRA"
            yield _Trial(
                f"train {name} of rank 16 instead of all weights",
                {"training": {"lora": {"quantized_base": quantized}}},
                replace(resolved, training=training),
            )


def _with_nodes(resolved: Resolved, nodes: int) -> Resolved:
    cluster = resolved.cluster.model_copy(update={"nodes": nodes})
    return replace(resolved, cluster=cluster)


def _hopeless_nodes(resolved: Resolved) -> int:
    """Nodes that cannot meet the deadline even at the GPUs' full arithmetic rate; 0 without one."""
    search, training, node = resolved.search, resolved.training, resolved.cluster.node
    if search.deadline_days is None or training.tokens is None:
        return 0
    number: Literal["bf16", "fp16", "fp32", "tf32", "fp8"]
    number = training.matmul_precision or training.precision
    flops = step_flops(resolved.model, training) / training.seq_len * training.tokens
    rate = node.gpu.peak_flops(number) * node.gpus_per_node
    return int(flops / (rate * search.deadline_days * SECONDS_PER_DAY))


def _more_nodes(resolved: Resolved) -> Change | None:
    """Doubles the nodes until a plan fits, then halves the interval; of equal nodes alone."""
    if resolved.cluster.groups:
        return None
    low = max(resolved.cluster.nodes, _hopeless_nodes(resolved))
    high = 2 * low
    best = None
    while high <= MOST_NODES and (best := _best(_with_nodes(resolved, high))) is None:
        low, high = high, 2 * high
    if best is None:
        return None
    while high - low > max(1, high // FINEST):
        middle = (low + high) // 2
        found = _best(_with_nodes(resolved, middle))
        if found is None:
            low = middle
        else:
            high, best = middle, found
    gpus = high * resolved.cluster.node.gpus_per_node
    return Change(
        f"use {high} nodes ({gpus} GPUs) instead of {resolved.cluster.nodes}; {_summary(best)}",
        {"cluster": {"nodes": high}},
        best,
    )


def _shorter_sequence(resolved: Resolved) -> Change | None:
    """Halves the sequence at the same tokens per step."""
    training = resolved.training
    length, batch = training.seq_len, training.global_batch
    while length > 128:
        length, batch = length // 2, batch * 2
        shorter = training.model_copy(update={"seq_len": length, "global_batch": batch})
        best = _best(replace(resolved, training=shorter))
        if best is not None:
            return Change(
                f"train on sequences of {length} tokens instead of {training.seq_len}; "
                f"{_summary(best)}",
                {"training": {"seq_len": length, "global_batch": batch}},
                best,
            )
    return None


def changes(resolved: Resolved) -> tuple[Change, ...]:
    """Every kind of change that helps, each at its smallest."""
    found = []
    for trial in (*_risk(resolved), *_offload(resolved), *_lora(resolved)):
        best = _best(trial.resolved)
        if best is not None:
            found.append(Change(f"{trial.what}; {_summary(best)}", trial.patch, best))
    for change in (_more_nodes(resolved), _shorter_sequence(resolved)):
        if change is not None:
            found.append(change)
    return tuple(found)
