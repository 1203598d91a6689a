"""What a command does when it is told to end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

TERMINATED = 128 + signal.SIGTERM
"""Exit code, as shells have it."""


def _leave(*_: Any) -> NoReturn:
    raise SystemExit(TERMINATED)


@contextmanager
def tidy_on_terminate() -> Iterator[None]:
    """SIGTERM leaves the block by an exception, as Ctrl-C does, so that its trials are ended."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
