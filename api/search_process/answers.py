"""One search, or one turn of a campaign, inside a search process: a request in, messages out."""

import logging
import queue
import threading
from collections.abc import Iterator
from typing import Any

from api.calibrated import calibrated
from api.completion import with_own_plan
from api.faults import invalid_fields, unexpected
from api.search_process.campaigns import turn
from planner.errors import RequestError
from planner.request import PlanRequest
from planner.search import search

log = logging.getLogger(__name__)

Message = dict[str, Any]


def _search(message: Message, out: "queue.Queue[Message | None]") -> None:
    def progress(evaluated: int, known: int) -> None:
        out.put({"kind": "progress", "progress": {"evaluated": evaluated, "known": known}})

    try:
        if "campaign_id" in message:
            out.put({"kind": "done", "result": turn(message)})
            return
        resolved = calibrated(
            PlanRequest.parse(message["request"]).resolve(), message.get("calibration")
        )
        found = search(with_own_plan(resolved), progress)
        result = found.to_json()
        for candidate in result.pop("candidates"):
            out.put({"kind": "candidate", "candidate": candidate})
        out.put({"kind": "done", "result": result | {"kept": len(found.candidates)}})
    except RequestError as error:
        # It was accepted by the service, perhaps by an earlier version with other rules.
        out.put(
            {
                "kind": "refused",
                "error": {
                    "title": "The request is no longer valid",
                    "detail": str(error),
                    "errors": invalid_fields(error.problems),
                },
            }
        )
    except Exception as error:  # whatever goes wrong is told to whoever asked
        what = "campaign" if "campaign_id" in message else "search"
        log.exception("%s failed", what)
        out.put(
            {"kind": "error", "error": {"title": f"The {what} failed", "detail": unexpected(error)}}
        )
    finally:
        out.put(None)


def answers(message: Message) -> Iterator[Message]:
    """The messages of one search or turn of a campaign, the last of them done, refused or error."""
    out: queue.Queue[Message | None] = queue.Queue()
    thread = threading.Thread(target=_search, args=(message, out), daemon=True)
    thread.start()
    while (answer := out.get()) is not None:
        yield answer
