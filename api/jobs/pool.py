"""Runs searches in processes of their own, so that the service answers while they count.

The processes stay warm between searches. Each reads requests from its standard input and ends
when that closes: none outlives the service, even where the service is killed.
"""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

Message = dict[str, Any]
"""One line of a worker: {"kind": "progress" | "candidate" | "done" | "refused" | "error", ...}."""

POLL_SECONDS = 0.5


class ShuttingDown(BaseException):
    """The service stops while a search runs.

    Not an Exception: the job engine keeps those as the job's outcome, and this job is to be
    taken over by the next process instead.
    """


class WorkerDied(Exception):  # noqa: N818 - it says what happened
    """A worker process ended before it answered: killed, or out of memory."""


class Abandoned(Exception):  # noqa: N818
    """Nobody waits for the answer any more."""


class _Worker:
    """One process and the thread that reads its lines."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "api.search_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True, name="search-worker-reader").start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, request: Message, wanted: Callable[[], bool]) -> Iterator[Message]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise WorkerDied(f"the computing process could not be reached: {error}") from error
        while True:
            try:
                line = self.lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if not wanted():
                    raise Abandoned from None
                continue
            if line is None:
                code = self.process.wait()
                raise WorkerDied(f"the computing process ended with code {code} before its answer")
            message: Message = json.loads(line)
            yield message
            if message["kind"] in {"done", "refused", "error"}:
                return

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class WorkerPool:
    """At most `size` searches at a time, each in its own process."""

    def __init__(self, size: int) -> None:
        self._free: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._stopped = False
        for _ in range(size):
            self._free.put(None)

    def warm(self) -> None:
        """Starts one process ahead of the first search."""
        slot = self._free.get()
        self._free.put(slot if slot is not None else self._started())

    def _started(self) -> _Worker:
        with self._lock:
            if self._stopped:
                raise ShuttingDown
            worker = _Worker()
            self._all.add(worker)
            return worker

    def _dropped(self, worker: _Worker) -> None:
        worker.stop()
        with self._lock:
            self._all.discard(worker)

    def run(self, request: Message, wanted: Callable[[], bool]) -> Iterator[Message]:
        """Yields the worker's messages up to the last one.

        wanted: asked now and then; where it says no, the process is ended and Abandoned raised.
        Raises WorkerDied where the process ends by itself, ShuttingDown where `stop` ended it.
        """
        worker = self._free.get()
        keep: _Worker | None = None
        try:
            if self._stopped:
                raise ShuttingDown
            if worker is None or not worker.alive:
                if worker is not None:
                    self._dropped(worker)
                worker = self._started()
            yield from worker.ask(request, wanted)
            keep = worker
        except WorkerDied as error:
            if self._stopped:
                raise ShuttingDown from error
            raise
        finally:
            # A worker that was left in the middle of an answer cannot be asked again.
            if keep is None and worker is not None:
                self._dropped(worker)
            self._free.put(keep)

    def stop(self) -> None:
        """Ends all processes; searches that run raise ShuttingDown."""
        with self._lock:
            self._stopped = True
            workers, self._all = self._all, set()
        for worker in workers:
            worker.stop()
