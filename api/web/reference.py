"""The reference of the HTTP interface as a page, from its OpenAPI document."""

import json
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from api.web.templating import page

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Parameter:
    """One parameter of an operation."""

    name: str
    place: str
    kind: str
    says: str


@dataclass(frozen=True)
class Operation:
    """One operation."""

    method: str
    path: str
    summary: str
    says: str
    parameters: tuple[Parameter, ...]
    example: str
    answers: tuple[tuple[str, str], ...]


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    options = [_kind(s) for s in schema.get("anyOf", ()) if s.get("type") != "null"]
    if options:
        return " or ".join(options)
    if schema.get("type") == "array":
        return f"{_kind(schema.get('items', {}))}, repeatable"
    return str(schema.get("type", "any"))


def _example(operation: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    for example in content.get("examples", {}).values():
        return json.dumps(example["value"], indent=2)
    return ""


def operations(document: dict[str, Any]) -> list[Operation]:
    """Every operation of an OpenAPI document, in its order."""
    return [
        Operation(
            method=method.upper(),
            path=path,
            summary=found.get("summary", ""),
            says=found.get("description", ""),
            parameters=tuple(
                Parameter(
                    p["name"],
                    p["in"],
                    _kind(p.get("schema", {})),
                    p.get("description") or p.get("schema", {}).get("description", ""),
                )
                for p in found.get("parameters", ())
            ),
            example=_example(found),
            answers=tuple((c, r.get("description", "")) for c, r in found["responses"].items()),
        )
        for path, methods in document["paths"].items()
        for method, found in methods.items()
    ]


@router.get("/docs")
def reference(request: Request) -> Response:
    """Every route with its parameters, an example and its answers."""
    document = request.app.openapi()
    return page("reference.html", info=document["info"], operations=operations(document))
