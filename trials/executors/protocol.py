"""What every executor offers. No torch here."""

from enum import StrEnum
from pathlib import Path
from typing import Protocol

from trials.result import TrialResult
from trials.step_log import RankSteps
from trials.trial_file import TrialFile


class State(StrEnum):
    """Where a trial is."""

    UNKNOWN = "unknown"
    """Never submitted here, or forgotten without a result."""
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    """There is a result."""


class Executor(Protocol):
    """Runs trials. All calls may come from another process than the one that submitted."""

    name: str

    @property
    def ranks(self) -> int:
        """The most ranks a trial can have here."""

    def check(self, trial: TrialFile) -> None:
        """Raises preflight.Refused for a trial that cannot run here; starts nothing."""

    def submit(self, trial: TrialFile) -> None:
        """Starts a trial, unless one of its id is there already: submitting twice runs it once.

        Raises preflight.Refused for a trial that cannot run here.
        """

    def state(self, trial_id: str) -> State:
        """Where the trial is."""

    def cancel(self, trial_id: str) -> None:
        """Ends all its processes; without effect on a trial that has ended."""

    def logs(self, trial_id: str) -> str:
        """What its ranks printed."""

    def steps(self, trial_id: str, most: int) -> tuple[RankSteps, ...]:
        """The last steps that each rank has measured so far; empty before the first."""

    def result(self, trial_id: str) -> TrialResult | None:
        """The result, None while there is none."""


def folder_of(root: Path, trial_id: str) -> Path:
    """The folder of a trial under an executor's root."""
    return root / trial_id
