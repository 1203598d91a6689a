"""Says why a request leaves no legal plan: the rule, or the pair of limits, at fault."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from cost_model.plans import Bools, Plan, PlanTable, Software
from planner.errors import Problem
from planner.request.pointers import pointer
from planner.request.search import Allow, Limit, SearchOptions
from planner.rules import RULES, Rule, World, violations
from planner.rules.columns import spoken
from planner.space.axes import axes, divisors, software_allowed
from planner.space.enumerate import enumerate_software

_PROBE = 256
"""Rows of structure and states that are refined first, to answer the usual case quickly."""


@dataclass(frozen=True)
class Restriction:
    """One thing that the request excludes."""

    pointer: str
    text: str
    apply: Callable[[SearchOptions], SearchOptions]


def _limited(name: str, limit: Limit, search: SearchOptions) -> SearchOptions:
    return search.model_copy(update={"limits": search.limits | {name: limit}})


def _fixed(name: str, value: object, search: SearchOptions) -> SearchOptions:
    return search.model_copy(update={"fixed": search.fixed | {name: value}})


def _disallowed(name: str, search: SearchOptions) -> SearchOptions:
    allow = search.allow.model_copy(update={name: False})
    return search.model_copy(update={"allow": allow})


def _first_rows(table: PlanTable) -> Bools:
    return np.arange(len(table)) < _PROBE


def has_plan(world: World, search: SearchOptions, rules: tuple[Rule, ...] = RULES) -> bool:
    """Whether any legal plan is left."""
    for software in software_allowed(search):
        spec = axes(world, search, software)
        if spec.combinations == 0:
            continue
        for bound in (_first_rows, None):
            if len(enumerate_software(world, spec, bound, rules).table):
                return True
    return False


def _free() -> SearchOptions:
    allow = Allow(**{name: True for name in Allow.model_fields if name != "compile"})
    return SearchOptions(allow=allow)


def restrictions(search: SearchOptions) -> list[Restriction]:
    """What the request excludes, one by one."""
    found = []
    for name, limit in search.limits.items():
        given = ", ".join(f"{k} {v}" for k, v in limit.model_dump(exclude_none=True).items())
        found.append(
            Restriction(
                pointer("search", "limits", name),
                f"{name} limited to {given}",
                partial(_limited, name, limit),
            )
        )
    for name, value in search.fixed.items():
        shown = value.name.lower() if isinstance(value, Software) else value
        found.append(
            Restriction(
                pointer("search", "fixed", name),
                f"{name} fixed to {shown}",
                partial(_fixed, name, value),
            )
        )
    for name in Allow.model_fields:
        if not getattr(search.allow, name) and name != "compile":
            found.append(
                Restriction(
                    pointer("search", "allow", name),
                    f"{name} not allowed",
                    partial(_disallowed, name),
                )
            )
    if set(search.software) != set(SearchOptions().software):
        names = ", ".join(s.name.lower() for s in search.software)
        found.append(
            Restriction(
                "/search/software",
                f"software limited to {names}",
                lambda s: s.model_copy(update={"software": search.software}),
            )
        )
    return found


def _with(chosen: tuple[Restriction, ...] | list[Restriction]) -> SearchOptions:
    search = _free()
    for one in chosen:
        search = one.apply(search)
    return search


def _batch_problem(world: World) -> Problem:
    per_node, batch = world.cluster.node.gpus_per_node, world.training.global_batch
    near = sorted({max(per_node, batch // per_node * per_node), -(-batch // per_node) * per_node})
    return Problem(
        "/training/global_batch",
        f"{batch} sequences: no data-parallel degree divides them on nodes of {per_node} GPUs with "
        f"this model (dp may be {', '.join(map(str, divisors(batch, world.cluster.gpus)))})",
        f"give a multiple of {per_node}, such as {' or '.join(map(str, near))}",
    )


def _blamed_rules(world: World, search: SearchOptions) -> list[Rule]:
    """Rules without any one of which a plan would be left."""
    return [
        one
        for one in RULES
        if has_plan(world, search, tuple(r for r in RULES if r.name != one.name))
    ]


def _broken_by(world: World, search: SearchOptions) -> list[str]:
    """What every software says against the fixed values alone, with the numbers."""
    fixed = {name: value for name, value in search.fixed.items() if name != "software"}
    told: dict[str, str] = {}
    everywhere: set[str] | None = None
    for software in software_allowed(search):
        plan = Plan(**({"software": software} | fixed))
        if "nodes" not in fixed:
            nodes = -(-plan.world_size // world.cluster.node.gpus_per_node)
            plan = plan.model_copy(update={"nodes": nodes})
        decided = {*fixed, "software", "nodes"}
        broken = {
            v.rule: v.message
            for v in violations(world, plan)
            if fixed and decided.issuperset(v.columns)
        }
        everywhere = set(broken) if everywhere is None else everywhere & set(broken)
        if not broken:
            return []
        told |= broken
    return [f"[{name}] {text}" for name, text in told.items() if name in (everywhere or told)]


def _offered(world: World, one: Restriction) -> list[int]:
    """What an axis holds without the limit that empties it."""
    search = _with([one])
    (name, *_) = [*search.limits, ""]
    offered: set[int] = set()
    for software in software_allowed(search):
        if len(axes(world, search, software).values.get(name, [0])):
            return []
        offered |= set(axes(world, _free(), software).values[name].tolist())
    return sorted(offered)


def _single_problem(world: World, one: Restriction) -> Problem:
    told = _broken_by(world, _with([one]))
    if told:
        return Problem(one.pointer, one.text, "; ".join(told))
    offered = _offered(world, one)
    if offered:
        return Problem(one.pointer, one.text, f"the search offers {spoken(offered)} here")
    blamed = _blamed_rules(world, _with([one]))
    if not blamed:
        return Problem(one.pointer, one.text, "no combination of the other degrees allows it")
    names = " ".join(f"[{r.name}] {r.says}" for r in blamed[:2])
    return Problem(one.pointer, one.text, f"it breaks the rule {names}")


def _pair_problems(world: World, first: Restriction, second: Restriction) -> list[Problem]:
    both = _with([first, second])
    told = _broken_by(world, both) or [
        f"[{r.name}] {r.says}" for r in _blamed_rules(world, both)[:2]
    ]
    wanted = "; ".join(told) or "lift one of the two"
    return [
        Problem(one.pointer, f"{one.text} contradicts: {other.text}", wanted)
        for one, other in ((first, second), (second, first))
    ]


def emptiness_problems(world: World, search: SearchOptions) -> list[Problem]:
    """Empty where at least one legal plan is left."""
    if has_plan(world, search):
        return []
    if not has_plan(world, _free()):
        return [_batch_problem(world)]
    given = restrictions(search)
    alone = [one for one in given if not has_plan(world, _with([one]))]
    if alone:
        return [_single_problem(world, one) for one in alone]
    for first, second in combinations(given, 2):
        if not has_plan(world, _with([first, second])):
            return _pair_problems(world, first, second)
    needed = list(given)
    for one in given:
        rest = [r for r in needed if r is not one]
        if not has_plan(world, _with(rest)):
            needed = rest
    others = "; ".join(r.text for r in needed)
    return [
        Problem(r.pointer, f"together these leave no plan: {others}", "lift one") for r in needed
    ]
