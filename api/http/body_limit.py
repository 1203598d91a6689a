"""Refuses request bodies above a size, before they are read whole.

Starlette has such a middleware; it answers in plain text, and every error here is a problem.
"""

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems.handlers import problem


class BodyLimitMiddleware:
    """413 for a body that says it is larger than the limit, or turns out to be."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        said = Headers(scope=scope).get("content-length", "")
        detail = f"the body is larger than {self.limit} bytes"
        if said.isdecimal() and int(said) > self.limit:
            await problem(Request(scope), 413, detail)(scope, receive, send)
            return
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.limit:
                raise HTTPException(413, detail)
            return message

        await self.app(scope, counted, send)
