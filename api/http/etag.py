"""ETag and If-None-Match for every JSON answer to a GET."""

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def etag(body: bytes) -> str:
    """A strong tag: the digest of the body."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _matches(header: str | None, tag: str) -> bool:
    if header is None:
        return False
    tags = [part.strip().removeprefix("W/") for part in header.split(",")]
    return "*" in tags or tag in tags


class ETagMiddleware:
    """Tags JSON answers; answers 304 without a body where the client has this one already."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            await self.app(scope, receive, send)
            return
        asked = Headers(scope=scope).get("if-none-match")
        start: Message | None = None
        body = b""

        async def tagging(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                kind = Headers(raw=message["headers"]).get("content-type", "")
                if message["status"] == 200 and kind.startswith("application/json"):
                    start = message
                    return
            if start is None:
                await send(message)
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            headers = MutableHeaders(raw=list(start["headers"]))
            headers["ETag"] = tag = etag(body)
            if _matches(asked, tag):
                for name in ("content-length", "content-type"):
                    del headers[name]
                start, body = {**start, "status": 304}, b""
            await send({**start, "headers": headers.raw})
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, tagging)
