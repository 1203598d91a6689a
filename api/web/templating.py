"""Renders the templates, with numbers written as people read them."""

from datetime import datetime
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.wording import method_of, summary

FOLDER = Path(__file__).parent
GIB = 2**30

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


def seconds(value: float) -> str:
    """A duration."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 600 else f"{value / 60:.1f} min"


def gib(value: float) -> str:
    """Bytes in GiB."""
    return f"{value / GIB:.1f} GiB"


def count(value: float) -> str:
    """A number with separators."""
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """A share."""
    return f"{100 * value:.1f} %"


def moment(value: datetime) -> str:
    """A moment in UTC, to the second."""
    return value.strftime("%Y-%m-%d %H:%M:%S UTC")


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "seconds": seconds,
    "gib": gib,
    "count": count,
    "percent": percent,
    "moment": moment,
    "knobs": summary,
    "method": method_of,
}


def page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A template as a response."""
    return HTMLResponse(_ENVIRONMENT.get_template(name).render(**values), status, HEADERS)
