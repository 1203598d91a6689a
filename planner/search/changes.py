"""The smallest changes that make a plan fit: each is searched for real on the changed request."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cost_model import catalogue
from cost_model.flops import step_flops
from cost_model.specs import Gpu, Lora, ModelSpec, TrainingSpec
from planner.candidate import GIB, Candidate, candidate
from planner.ranking import evaluate, rank
from planner.request.request import Resolved
from planner.search.more_nodes import enough_nodes
from planner.search.result import Change
from planner.space.emptiness import has_plan

EVEN_ODDS = 0.5
RISK_GAINS = 1.25
"""Times as long as the deadline at which no plan is tried any more that is only less sure to fit:
its recompute, a third of the arithmetic at most, is what a plan that fits more tightly saves."""


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


def _risk(resolved: Resolved, late: float) -> Iterator[_Trial]:
    if resolved.search.min_fits_probability > EVEN_ODDS and late <= RISK_GAINS:
        search = resolved.search.model_copy(update={"min_fits_probability": EVEN_ODDS})
        yield _Trial(
            f"accept a plan that fits with probability {EVEN_ODDS} instead of "
            f"{resolved.search.min_fits_probability}, and try it with a dry run first",
            {"search": {"min_fits_probability": EVEN_ODDS}},
            replace(resolved, search=search),
        )


def _double_quantized(resolved: Resolved) -> Iterator[_Trial]:
    lora = resolved.training.lora
    if lora is not None and lora.quantized_base and not lora.double_quantized:
        twice = lora.model_copy(update={"double_quantized": True})
        training = resolved.training.model_copy(update={"lora": twice})
        yield _Trial(
            "quantise the constants of the 4-bit base too (double quantisation)",
            {"training": {"lora": {"double_quantized": True}}},
            replace(resolved, training=training),
        )


def _pre_trains(resolved: Resolved) -> bool:
    """Whether the run is too long for adapters: a token and more for each parameter.

    Pre-training takes 20 (arXiv 2203.15556, table 3); sets of instructions are a thousandth of one.
    """
    tokens = resolved.training.tokens
    return tokens is not None and tokens >= resolved.model.params


def _lora(resolved: Resolved) -> Iterator[_Trial]:
    if resolved.training.lora is None and not _pre_trains(resolved):
        for quantized in (False, True):
            training = resolved.training.model_copy(update={"lora": Lora(quantized_base=quantized)})
            name = "QLoRA (4-bit base)" if quantized else "LoRA"
            yield _Trial(
                f"train {name} of rank 16 instead of all weights",
                {"training": {"lora": {"quantized_base": quantized}}},
                replace(resolved, training=training),
            )


def _maker(gpu: Gpu) -> str:
    return "amd" if gpu.generation.startswith("cdna") else "nvidia"


def _larger(gpu: Gpu) -> list[Gpu]:
    """The maker's GPUs with more memory, one of each size, those of the same generation first.

    Their memory is not much slower: a workstation's card does not take the place of an A100.
    Sizes within a twentieth are one: the same chips, in what the driver leaves of them.
    """
    every = [catalogue.gpu(name) for name in catalogue.gpu_names()]
    more = [
        one
        for one in every
        if _maker(one) == _maker(gpu)
        and one.memory_gib > 1.05 * gpu.memory_gib
        and one.memory_bandwidth_gb_per_s > 0.8 * gpu.memory_bandwidth_gb_per_s
    ]
    more.sort(key=lambda one: (one.generation != gpu.generation, one.memory_gib))
    kept: list[Gpu] = []
    for one in more:
        if all(abs(one.memory_gib / other.memory_gib - 1) > 0.05 for other in kept):
            kept.append(one)
    return kept


def _larger_gpu(resolved: Resolved) -> Change | None:
    """The same nodes with the smallest GPU that holds a plan, or one of a doubly quantised base."""
    cluster = resolved.cluster
    if cluster.groups or cluster.node.gpu.generation == "cpu":
        return None
    twice = tuple(_double_quantized(resolved))
    for gpu in _larger(cluster.node.gpu):
        node = cluster.node.model_copy(update={"gpu": gpu})
        more = cluster.model_copy(update={"node": node})
        what = (
            f"use GPUs with {gpu.memory_gib:.0f} GiB ({gpu.name}) instead of "
            f"{cluster.node.gpu.memory_gib:.0f}"
        )
        patch: dict[str, Any] = {"cluster": {"gpu": gpu.name}}
        trials = [_Trial(what, patch, replace(resolved, cluster=more))]
        trials += [
            _Trial(f"{what}, and {t.what}", patch | t.patch, replace(t.resolved, cluster=more))
            for t in twice
        ]
        for trial in trials:
            best = _best(trial.resolved)
            if best is not None:
                return Change(f"{trial.what}; {_summary(best)}", trial.patch, best)
    return None


def _more_nodes(resolved: Resolved, late: float) -> Change | None:
    """The fewest nodes with which a plan fits; of equal nodes alone."""
    nodes = None if resolved.cluster.groups else enough_nodes(resolved, late)
    if nodes is None:
        return None
    cluster = resolved.cluster.model_copy(update={"nodes": nodes})
    best = _best(replace(resolved, cluster=cluster))
    if best is None:
        return None
    return Change(
        f"use {nodes} nodes ({cluster.gpus} GPUs) instead of {resolved.cluster.nodes}; "
        f"{_summary(best)}",
        {"cluster": {"nodes": nodes}},
        best,
    )


def _flops_per_token(model: ModelSpec, training: TrainingSpec) -> float:
    return step_flops(model, training) / training.seq_len


def _shorter_sequence(resolved: Resolved, late: float) -> Change | None:
    """Halves the sequence at the same tokens per step.

    Where the time is short, lengths whose arithmetic falls by less than the run is late are left
    out.
    """
    training = resolved.training
    length, batch = training.seq_len, training.global_batch
    whole = _flops_per_token(resolved.model, training)
    while length > 128:
        length, batch = length // 2, batch * 2
        shorter = training.model_copy(update={"seq_len": length, "global_batch": batch})
        if late > whole / _flops_per_token(resolved.model, shorter):
            continue
        best = _best(replace(resolved, training=shorter))
        if best is not None:
            return Change(
                f"train on sequences of {length} tokens instead of {training.seq_len}; "
                f"{_summary(best)}",
                {"training": {"seq_len": length, "global_batch": batch}},
                best,
            )
    return None


def changes(resolved: Resolved, late: float = 0.0) -> tuple[Change, ...]:
    """Every kind of change that helps, each at its smallest; what trains something else goes last.

    late: the days of the quickest plan over those of the deadline; 0 where memory is what is short.
    """
    found: list[Change] = []

    def tried(trials: Iterator[_Trial]) -> None:
        for trial in trials:
            best = _best(trial.resolved)
            if best is not None:
                found.append(Change(f"{trial.what}; {_summary(best)}", trial.patch, best))

    tried(_risk(resolved, late))
    tried(_offload(resolved))
    tried(_double_quantized(resolved))
    larger = None if late else _larger_gpu(resolved)
    shapes = (_more_nodes(resolved, late), larger, _shorter_sequence(resolved, late))
    found += [change for change in shapes if change is not None]
    tried(_lora(resolved))
    return tuple(found)
