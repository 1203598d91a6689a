"""Cursors of keyset pages: opaque to clients, checked when they come back."""

import base64
import binascii
import json
from typing import Any

from api.problems.parameters import ParameterError
from planner.errors import Problem


def encode(*parts: Any) -> str:
    """A cursor that holds the parts."""
    text = json.dumps(parts, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str, *kinds: type) -> list[Any]:
    """The parts; raises ParameterError where they are not of these kinds."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        parts = None
    fits = isinstance(parts, list) and len(parts) == len(kinds)
    if not fits or not all(type(p) is k for p, k in zip(parts, kinds, strict=True)):
        raise ParameterError(
            [Problem("cursor", f"got {cursor!r}", "take the cursor from the page before")]
        )
    return list(parts)
