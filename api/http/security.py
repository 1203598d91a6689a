"""The optional API key."""

import secrets
from typing import Annotated

from fastapi import HTTPException, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from api.dependencies import settings_of

_HEADER = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="ApiKey")
_BEARER = HTTPBearer(auto_error=False, scheme_name="Bearer")


def require_key(
    request: Request,
    header: Annotated[str | None, Security(_HEADER)],
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
) -> None:
    """Lets in whoever sends MESHWRIGHT_API_KEY; everybody where none is set."""
    wanted = settings_of(request).api_key
    if wanted is None:
        return
    given = header if header is not None else bearer.credentials if bearer else ""
    if not secrets.compare_digest(given.encode(), wanted.encode()):
        raise HTTPException(
            401,
            "send the key as X-API-Key, or as Authorization: Bearer",
            {"WWW-Authenticate": "Bearer"},
        )
