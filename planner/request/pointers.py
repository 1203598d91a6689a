"""Turns pydantic's errors into problems with a JSON pointer and a hint."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

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
    ones the last, which in a row of sizes is the largest. What stands before a slash is an owner's
    name, as in `meta-llama/Llama-2-7b-hf`.
    """
    names = sorted(known)
    if not names:
        return "leave it out"
    folded = {name.lower().replace("_", "-"): name for name in names}
    asked = given.rpartition("/")[2].lower().replace("_", "-").removesuffix("-hf")
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


def _members(annotation: Any) -> list[Any]:
    """The alternatives of an annotation, None left out and `Annotated` opened."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [m for a in get_args(annotation) if a is not type(None) for m in _members(a)]
    return [annotation]


def _below(annotation: Any, part: object) -> list[Any]:
    """The annotations of what lies at a key or index of a value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        return [] if field is None else [field.annotation]
    items = [a for a in get_args(annotation) if a is not ...]
    return items[-1:] if get_origin(annotation) in (dict, list, tuple, Mapping) else []


def _without_tags(loc: Sequence[object], root: Any) -> list[object]:
    """A location without the names of a union's alternatives, which pydantic puts between keys."""
    here = _members(root)
    kept: list[object] = []
    tag_follows = len(here) > 1
    for part in loc:
        if tag_follows:
            tag_follows = False
            continue
        below = [_members(found) for member in here for found in _below(member, part)]
        tag_follows = any(len(members) > 1 for members in below)
        here = [member for members in below for member in members]
        kept.append(part)
    return kept


def short(value: object) -> str:
    """A value as the user wrote it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def problem_of(error: Mapping[str, Any], root: Any) -> Problem:
    """One entry of `ValidationError.errors()` as a problem; a leading 'body' is dropped.

    root: the model that was validated, or an annotation around it such as `Model | None`.
    """
    given = error["loc"]
    loc = _without_tags(given[1:] if given[:1] == ("body",) else given, root)
    where = pointer(*loc)
    context = error.get("ctx") or {}
    if isinstance(context.get("error"), Exception):
        return Problem(where, f"got {short(error.get('input'))}", str(context["error"]))
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(str(loc[-1]), _fields_at(root, loc[:-1]))
        return Problem(where, f"there is no field {loc[-1]!r}", hint)
    if error["type"] in ("model_attributes_type", "model_type", "dict_type"):
        return Problem(where, f"got {short(error.get('input'))}", "give a JSON object")
    if error["type"] == "missing":
        return Problem(where, "the field is missing", "it is required")
    message = str(error["msg"])
    return Problem(where, f"got {short(error.get('input'))}", message[:1].lower() + message[1:])


def problems_of(errors: Iterable[Any], root: Any) -> list[Problem]:
    """All entries of `ValidationError.errors()`."""
    return [problem_of(error, root) for error in errors]
