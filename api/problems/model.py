"""What a problem looks like."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MEDIA_TYPE = "application/problem+json"

TITLES = {
    400: "Bad request",
    401: "API key required",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Request too large",
    415: "Unsupported media type",
    422: "Invalid request",
    500: "Internal error",
    503: "Not ready",
}


class InvalidField(BaseModel):
    """One fault of a request."""

    model_config = ConfigDict(json_schema_extra={"required": ["detail"]})

    pointer: str | None = None
    """JSON pointer (RFC 6901) into the body; empty is the whole body."""
    parameter: str | None = None
    """Name of the query or path parameter, or of the header."""
    location: Literal["body", "query", "path", "header"] = "body"
    detail: str
    given: str | None = None
    wanted: str | None = None
    """What would do."""


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "Invalid request",
                    "status": 422,
                    "detail": "/training/seq_len: 8192 tokens, and llama-2-13b has positions for "
                    "4096; give at most 4096",
                    "instance": "/v1/plans",
                    "errors": [
                        {
                            "location": "body",
                            "pointer": "/training/seq_len",
                            "detail": "8192 tokens, and llama-2-13b has positions for 4096; "
                            "give at most 4096",
                            "given": "8192 tokens, and llama-2-13b has positions for 4096",
                            "wanted": "give at most 4096",
                        }
                    ],
                }
            ]
        }
    )

    type: str = "about:blank"
    """about:blank: the status says what kind of problem it is."""
    title: str
    status: int = Field(ge=400, le=599)
    detail: str | None = None
    instance: str | None = None
    """Path of the request."""
    errors: list[InvalidField] | None = None
    """Every fault found, each with its place."""


def problem_responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Responses for a route's documentation."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {c: {"description": TITLES[c], "content": {MEDIA_TYPE: schema}} for c in codes}
