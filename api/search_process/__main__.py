"""A search process: one request a line in, messages a line out, until its input closes."""

import json
import os
import queue
import sys
import threading
from typing import Any, TextIO

from api.search_process.answers import answers


def _read(requests: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        requests.put(line)
    # The service is gone, perhaps in the middle of a search that nobody waits for.
    os._exit(0)


def _serve(out: TextIO) -> None:
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request: dict[str, Any] = json.loads(requests.get())
        for message in answers(request):
            out.write(json.dumps(message, separators=(",", ":"), allow_nan=False) + "\n")
            out.flush()


if __name__ == "__main__":
    # What a library prints must not end up between the messages.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _serve(channel)
