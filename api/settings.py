"""What the environment says about this process. Nothing else in the project reads it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self


class SettingsError(ValueError):
    """An environment variable that cannot be used."""


@dataclass(frozen=True)
class Settings:
    """Every setting of the service, with its default."""

    host: str = "127.0.0.1"
    """MESHWRIGHT_HOST: address to listen on."""
    port: int = 8321
    """MESHWRIGHT_PORT: port to listen on."""
    var: Path = Path("var")
    """MESHWRIGHT_VAR: folder of the embedded database."""
    database_url: str = ""
    """MESHWRIGHT_DATABASE_URL: SQLAlchemy URL; empty is SQLite in the folder above."""
    api_key: str | None = None
    """MESHWRIGHT_API_KEY: what callers of /v1 must send; unset lets everybody in."""
    max_body_bytes: int = 4 * 2**20
    """MESHWRIGHT_MAX_BODY_BYTES: largest request body."""
    search_workers: int = 1
    """MESHWRIGHT_SEARCH_WORKERS: searches that this process runs at a time."""
    lease_seconds: float = 10.0
    """MESHWRIGHT_LEASE_SECONDS: silence after which another process takes a worker's jobs over."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Reads MESHWRIGHT_*; raises SettingsError that names the variable."""
        env = os.environ if environment is None else environment
        default = cls()
        return cls(
            host=env.get("MESHWRIGHT_HOST") or default.host,
            port=_number(env, "MESHWRIGHT_PORT", default.port, 0, 65_535),
            var=Path(env.get("MESHWRIGHT_VAR") or default.var),
            database_url=env.get("MESHWRIGHT_DATABASE_URL") or "",
            api_key=env.get("MESHWRIGHT_API_KEY") or None,
            max_body_bytes=_number(
                env, "MESHWRIGHT_MAX_BODY_BYTES", default.max_body_bytes, 1024, 2**31
            ),
            search_workers=_number(
                env, "MESHWRIGHT_SEARCH_WORKERS", default.search_workers, 1, 256
            ),
            lease_seconds=_seconds(env, "MESHWRIGHT_LEASE_SECONDS", default.lease_seconds),
        )

    @property
    def url(self) -> str:
        """The database's URL, with the driver that is installed."""
        if not self.database_url:
            return f"sqlite:///{(self.var / 'meshwright.db').resolve()}"
        for prefix in ("postgresql://", "postgres://"):
            if self.database_url.startswith(prefix):
                return "postgresql+psycopg://" + self.database_url.removeprefix(prefix)
        return self.database_url


def _number(env: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = env.get(name)
    if not text:
        return default
    if not text.isdecimal() or not low <= int(text) <= high:
        raise SettingsError(f"{name} is {text!r}; a whole number from {low} to {high} would do")
    return int(text)


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 86_400:
        raise SettingsError(f"{name} is {text!r}; seconds above 0 would do")
    return value
