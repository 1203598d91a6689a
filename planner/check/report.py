"""What a check answers: findings, whether the engine accepts, and the mended config."""

from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Patch:
    """One change to the config that mends a finding."""

    action: Literal["set", "remove", "move"]
    path: Path
    value: Any = None
    """The new value (set)."""
    to: Path = ()
    """The new place (move)."""


@dataclass(frozen=True)
class Finding:
    """One thing to know about a config."""

    severity: Severity
    code: str
    """Stable name of the class of finding; docs/check.md lists them."""
    path: str
    """Dotted path of the key; empty for the whole file."""
    reason: str
    mend: str
    patches: tuple[Patch, ...] = ()

    def to_json(self) -> dict[str, str]:
        """The five fields that are printed."""
        return {
            "severity": self.severity,
            "code": self.code,
            "path": self.path,
            "reason": self.reason,
            "mend": self.mend,
        }


@dataclass(frozen=True)
class Report:
    """The whole answer."""

    engine_accepts: bool
    """Whether DeepSpeed's own config class takes the file as it stands."""
    findings: tuple[Finding, ...]
    fixed: dict[str, Any] = field(default_factory=dict)
    """The config with every patch applied; keys that were right are kept as they were."""

    @property
    def has_error(self) -> bool:
        """Whether any finding is an error: exit code 1."""
        return any(f.severity == "error" for f in self.findings)

    def to_json(self) -> dict[str, Any]:
        """`{"engine_accepts", "findings", "fixed"}`."""
        return {
            "engine_accepts": self.engine_accepts,
            "findings": [f.to_json() for f in self.findings],
            "fixed": self.fixed,
        }
