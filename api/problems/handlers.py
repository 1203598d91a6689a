"""Turns every error that leaves a route into a problem."""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.faults import invalid_fields, invalid_parameters
from api.problems.model import MEDIA_TYPE, TITLES
from api.problems.parameters import ParameterError, query_model
from planner.errors import Problem, RequestError
from planner.request.pointers import models_of, problem_of

log = logging.getLogger(__name__)

METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

SHOWN = 3
"""Faults quoted in `detail`; `errors` lists all."""


def problem(
    request: Request,
    status: int,
    detail: str | None = None,
    errors: list[dict[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """A problem as a response."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        "instance": request.url.path,
    }
    if errors is not None:
        body["errors"] = errors
    return JSONResponse(body, status, media_type=MEDIA_TYPE, headers=headers)


def _invalid(request: Request, errors: list[dict[str, Any]]) -> JSONResponse:
    shown = [f"{e.get('pointer') or e.get('parameter') or '/'}: {e['detail']}" for e in errors]
    detail = "\n".join(shown[:SHOWN])
    if len(shown) > SHOWN:
        detail += f"\n... and {len(shown) - SHOWN} more"
    return problem(request, 422, detail, errors)


def _allowed_methods(request: Request) -> str:
    """Methods of all routes of the path; the router names those of the first one only."""
    found = [
        method
        for method in METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] == Match.FULL
            for route in request.app.routes
        )
    ]
    return ", ".join(found)


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """HTTPException: raised by routes and by the framework."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = _allowed_methods(request)
        detail = f"{request.method} is not allowed here; {headers['Allow']} would do"
        return problem(request, 405, detail, headers=headers)
    detail = str(error.detail)
    if error.status_code == 404 and detail == "Not Found":
        detail = f"there is nothing at {request.url.path}; /docs lists the routes"
    if error.status_code == 400 and error.__cause__ is not None:
        detail = _unreadable(error.__cause__)
    return problem(request, error.status_code, detail, headers=headers)


def _unreadable(cause: BaseException) -> str:
    """Why the framework could not read a body at all."""
    if isinstance(cause, RecursionError):
        return "the body is nested too deeply"
    if isinstance(cause, UnicodeDecodeError):
        return f"the body is not UTF-8: byte {cause.start} cannot be read"
    if isinstance(cause, ValueError) and "digits" in str(cause):
        return "the body has a number of too many digits"
    return "the body cannot be read"


def _body_model(request: Request) -> Any:
    """The annotation of the route's body, for hints about its fields."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return getattr(getattr(field, "field_info", None), "annotation", None)


def _all_missing(model: Any) -> list[dict[str, Any]]:
    """What an empty body lacks: every field that the model wants."""
    given = "the body is empty"
    wanted = [
        Problem(f"/{name}", given, "the field is required")
        for one in models_of(model)
        for name, field in one.model_fields.items()
        if field.is_required()
    ]
    return invalid_fields(wanted or [Problem("", given, "give a JSON object")])


def _entry(request: Request, error: dict[str, Any]) -> dict[str, Any]:
    location = str(error["loc"][0])
    if location == "body":
        if error["type"] == "json_invalid":
            place = error["loc"][1] if len(error["loc"]) > 1 else 0
            said = error.get("ctx", {}).get("error", error["msg"])
            return {"pointer": "", "detail": f"not JSON: {said}, at character {place}"}
        return invalid_fields([problem_of(error, _body_model(request))])[0]
    found = problem_of({**error, "loc": error["loc"][1:]}, query_model(request))
    return invalid_parameters([found])[0] | {"location": location}


async def on_invalid(request: Request, error: Exception) -> JSONResponse:
    """RequestValidationError: the framework refused the body or a parameter."""
    assert isinstance(error, RequestValidationError)
    if not await request.body() and any(e["loc"] == ("body",) for e in error.errors()):
        return _invalid(request, _all_missing(_body_model(request)))
    kind = request.headers.get("content-type", "")
    if kind.split(";")[0] != "application/json" and any(
        e["loc"] == ("body",) for e in error.errors()
    ):
        return problem(
            request, 415, f"the body is {kind or 'of no type'}; application/json would do"
        )
    return _invalid(request, [_entry(request, dict(e)) for e in error.errors()])


async def on_refused(request: Request, error: Exception) -> JSONResponse:
    """RequestError: the planner refused the request."""
    assert isinstance(error, RequestError)
    if isinstance(error, ParameterError):
        return _invalid(request, invalid_parameters(error.problems))
    return _invalid(request, invalid_fields(error.problems))


async def on_crash(request: Request, error: Exception) -> JSONResponse:
    """Anything else is a fault of ours: the log has it, the client does not."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(request, 500, "the service failed; its log says why")


def install(app: FastAPI) -> None:
    """Registers the handlers."""
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(RequestError, on_refused)
    app.add_exception_handler(Exception, on_crash)
