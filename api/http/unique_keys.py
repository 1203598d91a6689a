"""Refuses JSON bodies in which a key is given twice."""

from fastapi import Request

from api.unique_json import parsed_json
from planner.errors import RequestError


async def unique_keys(request: Request) -> None:
    """Raises RequestError where the body has such a key; no JSON is left to the framework."""
    if "json" not in request.headers.get("content-type", ""):
        return
    try:
        parsed_json(await request.body())
    except RequestError:
        raise
    except (ValueError, RecursionError):
        return
