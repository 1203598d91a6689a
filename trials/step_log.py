"""The steps of a trial while it runs: each rank adds a line to a file of its own. No torch here."""

import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from cost_model.specs.frozen import Frozen
from trials.executors.collect import phases
from trials.result import StepMeasurement

FLUSH_S = 1.0
"""A shared folder is slow to write, and a rank that waits for it is waited for by all others."""


class RankSteps(Frozen):
    """What one rank has measured so far."""

    rank: int
    phase: str
    """Where it was seen last: load, init, forward, backward, step."""
    done: int
    """Optimizer steps, warm-up included."""
    steps: tuple[StepMeasurement, ...]
    """The last of them, in time order."""


def step_log_path(folder: Path, rank: int) -> Path:
    """Where a rank adds its steps, a line of JSON each."""
    return folder / f"steps-{rank}.jsonl"


class StepLog:
    """Writes steps as they are measured, at most once a second."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file = step_log_path(folder, rank).open("w", encoding="utf-8", buffering=1 << 20)
        self._flushed = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, step: StepMeasurement) -> None:
        """One more step."""
        self._file.write(step.model_dump_json() + "\n")
        now = time.monotonic()
        if now - self._flushed >= FLUSH_S:
            self._file.flush()
            self._flushed = now


def steps_so_far(folder: Path, most: int) -> tuple[RankSteps, ...]:
    """The last `most` steps of each rank of a trial's folder; ranks that were not seen yet are left
    out."""
    ranks = {int(path.name.removeprefix("phase-")) for path in folder.glob("phase-*")}
    seen = phases(folder, max(ranks, default=-1) + 1)
    found = []
    for rank in sorted(ranks):
        done, last = 0, deque[str](maxlen=most)
        path = step_log_path(folder, rank)
        if path.exists():
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):  # else the writer is in the middle of it
                        done += 1
                        last.append(line)
        steps = tuple(StepMeasurement.model_validate_json(line) for line in last)
        found.append(RankSteps(rank=rank, phase=seen[rank], done=done, steps=steps))
    return tuple(found)
