"""Turns pydantic's errors into problems with a JSON pointer and a hint."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from planner.errors import Problem


def pointer(*parts: object) -> str:
    """JSON pointer of nested keys (RFC 6901: `~` and `/` are escaped)."""
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in parts)


def _shared(one: str, other: str) -> int:
    """Letters that two names have in common at the start."""
    pairs = list(zip(one, other, strict=False))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """'did you mean x?' for a near miss, else the list of what is known.

    A name that goes on where the given one stops is nearer than one with other letters; of equal
    ones the last, which in a row of sizes is the largest.
    """
    names = sorted(known)
    if not names:
        return "leave it out"
    folded = {name.lower().replace("_", "-"): name for name in names}
    asked = given.lower().replace("_", "-")
    longer = [name for name in folded if name.startswith(asked)] if len(asked) > 2 else []
    near = get_close_matches(asked, folded, n=5, cutoff=0.6)
    if longer:
        nearest = max(longer, key=lambda name: (-len(name), name))
    elif near:
        nearest = max(near, key=lambda name: _shared(asked, name))
    else:
        return f"one of {', '.join(names)} would do"
    return f"did you mean {folded[nearest]!r}?"


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """The pydantic models inside an annotation such as `X | None` or `tuple[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in get_args(annotation) for model in models_of(arg)]


def _fields_at(root: Any, loc: Sequence[object]) -> list[str]:
    """Names of the fields of the object that `loc` points to."""
    models = models_of(root)
    for part in loc:
        below = [m.model_fields.get(str(part)) for m in models]
        found = [m for field in below if field for m in models_of(field.annotation)]
        if found:
            models = found
    return sorted({name for m in models for name in m.model_fields})


def short(value: object) -> str:
    """A value as the user wrote it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def problem_of(error: Mapping[str, Any], root: Any) -> Problem:
    """One entry of `ValidationError.errors()` as a problem; a leading 'body' is dropped.

    root: the model that was validated, or an annotation around it such as `Model | None`.
    """
    loc = [p for i, p in enumerate(error["loc"]) if not (i == 0 and p == "body")]
    where = pointer(*loc)
    context = error.get("ctx") or {}
    if isinstance(context.get("error"), Exception):
        return Problem(where, f"got {short(error.get('input'))}", str(context["error"]))
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(str(loc[-1]), _fields_at(root, loc[:-1]))
        return Problem(where, f"there is no field {loc[-1]!r}", hint)
    if error["type"] == "missing":
        return Problem(where, "the field is missing", "it is required")
    message = str(error["msg"])
    return Problem(where, f"got {short(error.get('input'))}", message[:1].lower() + message[1:])


def problems_of(errors: Iterable[Any], root: Any) -> list[Problem]:
    """All entries of `ValidationError.errors()`."""
    return [problem_of(error, root) for error in errors]
