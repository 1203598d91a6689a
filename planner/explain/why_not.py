"""Why not X: the first rule a partial plan breaks, the bytes it misses, or the seconds it loses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from cost_model.plans import Plan
from planner.candidate import GIB, Candidate, Difference, candidate
from planner.errors import Problem, RequestError
from planner.explain.why import WORDS, difference
from planner.groups import options
from planner.options import on_option
from planner.ranking import evaluate, nearest, rank
from planner.request.pointers import did_you_mean, problems_of
from planner.request.request import Resolved
from planner.space.emptiness import emptiness_problems

Verdict = Literal["breaks a rule", "does not fit", "is slower", "is the best"]


@dataclass(frozen=True)
class WhyNot:
    """The answer to one "why not X"."""

    asked: dict[str, Any]
    verdict: Verdict
    sentences: tuple[str, ...]
    candidate: Candidate | None = None
    """The best plan of that kind, or the nearest where none fits."""
    missing_bytes: float = 0.0
    versus_best: Difference | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dict(_ADAPTER.dump_python(self, mode="json"))


_ADAPTER = TypeAdapter(WhyNot)


def partial_plan(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Some columns of a plan, validated; RequestError points into `explain`."""
    unknown = [
        Problem(f"/explain/{name}", f"{name!r} is no part of a plan", hint)
        for name in asked
        if name not in Plan.model_fields
        for hint in [did_you_mean(name, Plan.model_fields)]
    ]
    if unknown:
        raise RequestError(unknown)
    try:
        plan = Plan.model_validate(dict(asked))
    except ValidationError as error:
        problems = problems_of(error.errors(), Plan)
        raise RequestError([replace(p, pointer=f"/explain{p.pointer}") for p in problems]) from None
    return {name: getattr(plan, name) for name in asked}


def why_not(resolved: Resolved, asked: Mapping[str, Any], best: Candidate | None) -> WhyNot:
    """Searches the plans with the asked columns and compares the best of them with `best`.

    Where groups of nodes differ, on every cluster that they make.
    """
    if not resolved.groups:
        return _why_not(resolved, asked, best)
    answers = []
    for cluster in options(resolved.groups).clusters:
        one = _why_not(on_option(resolved, cluster), asked, best, cluster.name)
        answers.append(one)
    return min(answers, key=_usefulness)


def _usefulness(answer: WhyNot) -> tuple[float, ...]:
    """What works before what does not fit before what breaks a rule."""
    found = answer.candidate
    if found is None:
        return (2.0, 0.0)
    if answer.verdict == "does not fit":
        return (1.0, answer.missing_bytes)
    return (0.0, found.step.seconds)


def _why_not(
    resolved: Resolved, asked: Mapping[str, Any], best: Candidate | None, cluster: str = ""
) -> WhyNot:
    fixed = partial_plan(asked)
    search = resolved.search.model_copy(
        update={"fixed": resolved.search.fixed | fixed, "keep": 1, "around": None}
    )
    narrowed = replace(resolved, search=search)
    shown = dict(Plan(**fixed).model_dump(mode="json", include=set(fixed)))
    problems = emptiness_problems(narrowed.world, search)
    if problems:
        return WhyNot(shown, "breaks a rule", tuple(dict.fromkeys(p.message for p in problems)))
    ranked = rank(narrowed)
    if not len(ranked.table):
        return _too_large(narrowed, shown)
    found = candidate(resolved.world, ranked.table, evaluate(resolved.world, ranked.table), 0)
    found = replace(found, cluster=cluster)
    if best is None or (found.plan == best.plan and best.cluster in ("", cluster)):
        return WhyNot(shown, "is the best", ("It is the best plan of the request.",), found)
    return _slower(shown, found, best)


def _too_large(resolved: Resolved, shown: dict[str, Any]) -> WhyNot:
    table, missing = nearest(resolved, 1)
    found = candidate(resolved.world, table, evaluate(resolved.world, table), 0)
    memory = found.memory
    largest = sorted(memory.categories.items(), key=lambda item: -item[1])[:3]
    held = ", ".join(f"{name} {size / GIB:.1f}" for name, size in largest)
    if memory.host_bytes > memory.host_capacity_bytes:
        what = (
            f"the host needs {memory.host_bytes / GIB:.0f} of "
            f"{memory.host_capacity_bytes / GIB:.0f} GiB"
        )
    else:
        what = (
            f"stage {memory.peak_stage} at {memory.peak_phase} needs "
            f"{memory.total_bytes / GIB:.1f} of {memory.capacity_bytes / GIB:.1f} GiB "
            f"({held} GiB)"
        )
    sentence = (
        f"No such plan fits: in the one that comes nearest {what}; it fits with probability "
        f"{found.fits_probability:.2f}."
    )
    return WhyNot(shown, "does not fit", (sentence,), found, float(missing[0]))


def _slower(shown: dict[str, Any], found: Candidate, best: Candidate) -> WhyNot:
    lost = difference(found, best)
    share = 100 * lost.seconds / best.step.seconds
    terms = sorted(lost.parts.items(), key=lambda item: -abs(item[1]))[:4]
    told = ", ".join(f"{seconds:+.3g} s {WORDS[name]}" for name, seconds in terms if seconds)
    sentence = (
        f"The best such plan takes {found.step.seconds:.3g} s a step against "
        f"{best.step.seconds:.3g} s ({share:+.1f} %): {told or 'the same in every term'}."
    )
    return WhyNot(shown, "is slower", (sentence,), found, 0.0, lost)
