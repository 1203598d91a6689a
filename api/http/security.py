"""The optional API key."""

import secrets
from typing import Annotated

from fastapi import HTTPException, Request, Security
from fastapi.security import (
    APIKeyHeader,
    HTTPAuthorizationCredentials,
    HTTPBasic,
    HTTPBasicCredentials,
    HTTPBearer,
)

from api.dependencies import settings_of

_HEADER = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="ApiKey")
_BEARER = HTTPBearer(auto_error=False, scheme_name="Bearer")
_BASIC = HTTPBasic(auto_error=False)


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
    if not _same(given, wanted):
        raise HTTPException(
            401,
            "send the key as X-API-Key, or as Authorization: Bearer",
            {"WWW-Authenticate": "Bearer"},
        )


def require_password(
    request: Request, basic: Annotated[HTTPBasicCredentials | None, Security(_BASIC)]
) -> None:
    """The pages: a browser asks for name and password, and the password is the key."""
    wanted = settings_of(request).api_key
    if wanted is not None and not _same(basic.password if basic else "", wanted):
        raise HTTPException(401, "any name, and the key as password", {"WWW-Authenticate": "Basic"})


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode(), wanted.encode())
