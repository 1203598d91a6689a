"""Does it fit: the plan that a config means, what the cost model says of it, and what would do."""

from dataclasses import dataclass, replace
from typing import Any

from cost_model import catalogue
from cost_model.plans import Offload, Plan, PlanTable, Recompute
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec
from planner.candidate import Candidate, candidates
from planner.check.meaning import Meaning, meaning
from planner.check.report import Finding, Patch
from planner.check.situation import Situation
from planner.check.stages import stage_of
from planner.errors import RequestError
from planner.explain import around
from planner.ranking import evaluate
from planner.request import Resolved, SearchOptions
from planner.rules import World, violations

GIB = 2**30
LARGE_WEIGHTS = 70e9
"""Bytes of 16-bit weights beyond which an 80 GB GPU has no room for them and anything else."""


def check(document: dict[str, Any], situation: Situation, seq_len: int | None) -> list[Finding]:
    """Findings about memory; few where the model or the cluster is not known."""
    model = situation.model or named_model(situation.facts.get("model_name"))
    if model is None:
        return []
    known = replace(situation, model=model)
    if situation.cluster is None or situation.world_size is None:
        return _weights_alone(document, model)
    if situation.world_size > situation.cluster.gpus:
        return [
            Finding(
                "error",
                "world-beyond-cluster",
                "",
                f"{situation.world_size} ranks on a cluster of {situation.cluster.gpus} GPUs",
                f"use {situation.cluster.gpus} ranks, or more nodes",
            )
        ]
    meant = meaning(document, known, seq_len)
    if meant is None:
        return []
    return _verdict(document, _World(model, situation.cluster, meant))


def named_model(name: object) -> ModelSpec | None:
    """The preset that a free name means, such as "Mixtral-8x7B (LoRA)"; None for none."""
    if not isinstance(name, str) or not name.strip():
        return None
    plain = name.lower().split("(")[0].strip().replace(" ", "-").split("/")[-1]
    for candidate_name in (plain, plain.removesuffix("-hf"), plain.removesuffix("-base")):
        if candidate_name in catalogue.model_names():
            return catalogue.model(candidate_name)
    return None


def _weights_alone(document: dict[str, Any], model: ModelSpec) -> list[Finding]:
    stage = stage_of(document)
    weights = 2 * model.params
    if stage is None or stage == 3 or weights < LARGE_WEIGHTS:
        return []
    return [
        Finding(
            "error",
            "weights-replicated",
            "zero_optimization.stage",
            f"below stage 3 every GPU holds all {model.params / 1e9:.1f} billion weights: "
            f"{weights / 1e9:.1f} GB in 16 bits, before anything else (LoRA too; offload of the "
            "optimizer does not move them)",
            "use stage 3" + (" with leaf modules for the experts" if model.is_moe else ""),
            (Patch("set", ("zero_optimization", "stage"), 3),),
        )
    ]


@dataclass(frozen=True)
class _World:
    model: ModelSpec
    cluster: ClusterSpec
    meant: Meaning

    @property
    def training(self) -> TrainingSpec:
        return self.meant.training

    def score(self, plans: list[Plan]) -> list[Candidate]:
        """Predictions of several plans at once."""
        world = World(self.model, self.cluster, self.training)
        table = PlanTable.from_plans(plans)
        prediction = evaluate(world, table)
        return candidates(world, table, prediction)


def _gib(value: float) -> str:
    return f"{value / GIB:.1f} GiB"


def _verdict(document: dict[str, Any], world: _World) -> list[Finding]:
    (own,) = world.score([world.meant.plan])
    found = [_memory(own, world)]
    if own.memory.host_bytes > own.memory.host_capacity_bytes:
        found.append(_host(own))
    near = _near(world, own)
    found.extend(_single_changes(own, world))
    if near is not None:
        found.append(near)
    return found


def _memory(own: Candidate, world: _World) -> Finding:
    memory = own.memory
    top = sorted(memory.categories.items(), key=lambda c: -c[1])[:3]
    parts = ", ".join(f"{name} {_gib(size)}" for name, size in top)
    told = "; assumed: " + ", ".join(world.meant.assumed) if world.meant.assumed else ""
    seen = (
        f"peak {_gib(memory.total_bytes)} ({_gib(memory.total_bytes_low)} to "
        f"{_gib(memory.total_bytes_high)}) of {_gib(memory.capacity_bytes)} on the worst GPU, in "
        f"{memory.peak_phase.replace('_', '-')} ({parts}); host {_gib(memory.host_bytes)} a "
        f"node of "
        f"{_gib(memory.host_capacity_bytes)}{told}"
    )
    if memory.total_bytes <= memory.capacity_bytes:
        sure = f"fits with probability {own.fits_probability:.0%}"
        severity = "note" if own.fits_probability >= 0.9 else "warning"
        return Finding(
            severity,  # type: ignore[arg-type]
            "memory-fits",
            "",
            f"{sure}: {seen}; {own.step.seconds:.2f} s a step",
            "nothing to do" if severity == "note" else "leave room: see the changes below",
        )
    missing = memory.total_bytes - memory.capacity_bytes
    return Finding(
        "error",
        "memory-overflow",
        "",
        f"does not fit: {_gib(missing)} are missing; it dies in "
        f"{memory.peak_phase.replace('_', '-')}: {seen}",
        "see the changes below",
    )


def _host(own: Candidate) -> Finding:
    memory = own.memory
    return Finding(
        "error",
        "host-memory-overflow",
        "zero_optimization.offload_optimizer",
        f"the host runs out: {_gib(memory.host_bytes)} a node of "
        f"{_gib(memory.host_capacity_bytes)}; the process dies with exit code -9 and no message",
        "more nodes, NVMe offload, or no offload",
    )


def _single_changes(own: Candidate, world: _World) -> list[Finding]:
    """What each change of one key does; only those that help where it does not fit."""
    options = _options(own.plan, world)
    if not options:
        return []
    found = world.score([plan for _, plan in options])
    told = []
    for (text, _), one in zip(options, found, strict=True):
        if one.memory.host_bytes > one.memory.host_capacity_bytes:
            effect = f"the host would need {_gib(one.memory.host_bytes)}"
        else:
            effect = f"{_gib(one.memory.total_bytes)}, {'fits' if one.fits else 'does not fit'}"
        if own.step.seconds > 0:
            effect += f", {one.step.seconds / own.step.seconds:.2f} x the step time"
        told.append(f"{text}: {effect}")
    return [
        Finding(
            "note",
            "memory-one-change",
            "",
            "with one change the peak is: " + "; ".join(told),
            "nothing to do" if own.fits else "take the first that fits",
        )
    ]


def _options(plan: Plan, world: _World) -> list[tuple[str, Plan]]:
    out: list[tuple[str, Plan]] = []

    legal = World(world.model, world.cluster, world.training)

    def refused(one: Plan) -> set[str]:
        return {v.rule for v in violations(legal, one) if v.kind == "refused"}

    already = refused(plan)

    def option(text: str, **changes: Any) -> None:
        changed = plan.model_copy(update=changes)
        if refused(changed) <= already:
            out.append((text, changed))

    if plan.recompute == Recompute.NONE:
        option("activation checkpointing in the model", recompute=Recompute.FULL)
    for stage in range(plan.zero_stage + 1, 4):
        option(f"zero_optimization.stage {stage}", zero_stage=stage)
    if plan.offload_optimizer == Offload.NONE and plan.zero_stage >= 1:
        option("offload_optimizer.device cpu", offload_optimizer=Offload.CPU)
    elif plan.offload_optimizer == Offload.CPU:
        option("no optimizer offload", offload_optimizer=Offload.NONE)
    if plan.zero_stage == 3 and plan.offload_param == Offload.NONE:
        option("offload_param.device cpu", offload_param=Offload.CPU)
    if plan.micro_batch > 1:
        steps = plan.micro_batch * plan.grad_accum
        option(f"micro-batch 1 and accumulation {steps}", micro_batch=1, grad_accum=steps)
    if plan.reduce_bucket > 50_000_000 and plan.zero_stage:
        option("reduce_bucket_size 5e7", reduce_bucket=50_000_000)
    return out


def _near(world: _World, own: Candidate) -> Finding | None:
    """The best plan near the config's own."""
    search = SearchOptions()
    resolved = Resolved(world.model, world.cluster, world.training, search)
    try:
        found = around(resolved, own.plan)
    except RequestError:
        return None
    same = [i for i in found.improvements if i.candidate.plan.software == own.plan.software]
    others = [i for i in found.improvements if i not in same]
    if not same and not others:
        return None
    fits = own.memory.total_bytes <= own.memory.capacity_bytes
    fits = fits and own.memory.host_bytes <= own.memory.host_capacity_bytes
    best = (same or others)[-1] if fits else (same or others)[0]
    further = [i for i in found.improvements if i is not best][-1:]
    more = f" Further: {further[0].sentence}" if further else ""
    memory = best.candidate.memory
    return Finding(
        "note",
        "plan-near",
        "",
        f"the best plan near this one: {best.sentence} Peak {_gib(memory.total_bytes)} of "
        f"{_gib(memory.capacity_bytes)}, {best.candidate.step.seconds:.2f} s a step.{more}",
        _as_keys(best.candidate.plan),
        () if fits else _patches(own.plan, best.candidate.plan),
    )


def _as_keys(plan: Plan) -> str:
    words = [f"zero_optimization.stage {plan.zero_stage}"]
    if plan.offload_optimizer != Offload.NONE:
        words.append(f"offload_optimizer.device {plan.offload_optimizer.name.lower()}")
    if plan.offload_param != Offload.NONE:
        words.append(f"offload_param.device {plan.offload_param.name.lower()}")
    if plan.tp > 1:
        words.append(f"tensor_parallel.autotp_size {plan.tp}")
    words.append(f"train_micro_batch_size_per_gpu {plan.micro_batch}")
    words.append(f"gradient_accumulation_steps {plan.grad_accum}")
    if plan.recompute != Recompute.NONE:
        words.append("activation checkpointing in the model (gradient_checkpointing_enable)")
    return ", ".join(words)


def _patches(own: Plan, better: Plan) -> tuple[Patch, ...]:
    """The config's keys that lead from one plan to the other; launch and code are left out."""
    zero = "zero_optimization"
    out: list[Patch] = []
    if better.zero_stage != own.zero_stage:
        out.append(Patch("set", (zero, "stage"), better.zero_stage))
    for name in ("offload_optimizer", "offload_param"):
        new: Offload = getattr(better, name)
        if new == getattr(own, name):
            continue
        if new == Offload.NONE:
            out.append(Patch("remove", (zero, name)))
        else:
            out.append(Patch("set", (zero, name, "device"), new.name.lower()))
    if better.tp != own.tp:
        place = ("tensor_parallel", "autotp_size")
        out.append(Patch("set", place, better.tp) if better.tp > 1 else Patch("remove", place[:1]))
    if (better.micro_batch, better.grad_accum) != (own.micro_batch, own.grad_accum):
        out.append(Patch("remove", ("train_batch_size",)))
        out.append(Patch("set", ("train_micro_batch_size_per_gpu",), better.micro_batch))
        out.append(Patch("set", ("gradient_accumulation_steps",), better.grad_accum))
    return tuple(out)
