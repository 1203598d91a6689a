"""What the user may say of an export beside the plan: names and paths, never commands."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from cost_model.specs.frozen import Frozen

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\Z")


def _name(value: str) -> str:
    if not _NAME.match(value):
        raise ValueError("letters, digits, dots, dashes and underscores only, 63 at most")
    return value


def _host(value: str) -> str:
    if not _HOST.match(value):
        raise ValueError("a host name or an IPv4 address")
    return value


def _text(value: str) -> str:
    if any(ord(c) < 32 or ord(c) == 127 for c in value):
        raise ValueError("no control characters (line breaks, tabs)")
    if not value.strip():
        raise ValueError("not empty")
    return value


Name = Annotated[str, AfterValidator(_name)]
"""Goes into directives and object names, where quoting is not reliable: a narrow alphabet."""
Host = Annotated[str, AfterValidator(_host)]
Text = Annotated[str, Field(max_length=1024), AfterValidator(_text)]
"""Goes into scripts quoted: one line of any characters."""


class ExportOptions(Frozen):
    """Names and paths of an export."""

    job_name: Name = "meshwright"
    model_path: Text = "./model"
    """Folder or hub name that holds the model's config.json (and weights, for a real run)."""
    output_dir: Text = "./output"
    hosts: tuple[Host, ...] = ()
    """Node names, for the hostfile; node-0, node-1, ... where none are given."""
    master_port: int = Field(default=29500, ge=1024, le=65535)
    partition: Name | None = None
    account: Name | None = None
    time_limit_minutes: int = Field(default=60, ge=1, le=60 * 24 * 60)
    namespace: Name = "default"
    image: Text = "deepspeed:0.19.8"
    """Container image of the Kubernetes job."""
    model_config_json: dict[str, Any] | None = None
    """The model's config.json, where the request had one: it goes into the bundle."""
