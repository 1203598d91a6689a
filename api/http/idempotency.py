"""Idempotency-Key: a request that can be sent again without being done twice."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Header, HTTPException

from api.store import IdempotencyConflict, Once

IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]


def once(route: str, key: str | None, body: Any) -> Once | None:
    """What the store looks for; None without a key. body: plain data, all that decides."""
    if key is None:
        return None
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return Once(route, key, hashlib.sha256(text.encode()).hexdigest())


@contextmanager
def conflict_as_409() -> Iterator[None]:
    """Answers 409 where a key comes again with another body."""
    try:
        yield
    except IdempotencyConflict as error:
        raise HTTPException(
            409, "this Idempotency-Key was used with another request; take a new one"
        ) from error
