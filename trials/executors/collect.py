"""From the ranks' reports to the result of a trial."""

from pathlib import Path

from trials.diagnose import diagnose
from trials.outcome import Outcome, first_cause, of_exit_code
from trials.result import RankReport, TrialResult, rank_path, result_path
from trials.trial_file import TrialFile, write_atomically

TAIL = 4000
"""Characters of a rank's log that go into its outcome."""


def log_path(folder: Path, rank: int) -> Path:
    """Where a rank's output goes."""
    return folder / f"log-{rank}.txt"


def collect(
    folder: Path,
    trial: TrialFile,
    exit_codes: dict[int, int],
    *,
    wall_seconds: float,
    ended_by: Outcome | None = None,
) -> TrialResult:
    """Reads all reports, decides the outcome, writes the result whole or not at all.

    exit_codes: of each rank, negative for signals. ended_by: what stopped the trial from outside.
    """
    reports, outcomes = [], []
    for rank in range(trial.plan.world_size):
        path = rank_path(folder, rank)
        if path.exists():
            report = RankReport.model_validate_json(path.read_text("utf-8"))
            reports.append(report)
            outcomes.append(report.outcome)
        elif ended_by is None:
            outcomes.append(of_exit_code(exit_codes.get(rank, 1), rank, _tail(folder, rank)))
    outcome = ended_by or first_cause(outcomes)
    result = TrialResult(
        trial_id=trial.trial_id,
        outcome=outcome,
        ranks=tuple(reports),
        findings=tuple(diagnose(trial.plan, tuple(reports), same_batch=trial.same_batch)),
        wall_seconds=wall_seconds,
    )
    write_atomically(result_path(folder), result.model_dump_json())
    return result


def _tail(folder: Path, rank: int) -> str:
    path = log_path(folder, rank)
    return path.read_text("utf-8", errors="replace")[-TAIL:] if path.exists() else ""


def phases(folder: Path, world: int) -> dict[int, str]:
    """The phase in which each rank was seen last."""
    found = {}
    for rank in range(world):
        path = folder / f"phase-{rank}"
        found[rank] = path.read_text("utf-8") if path.exists() else "load"
    return found
