"""From the ranks' reports to the result of a trial."""

from pathlib import Path

from trials.diagnose import diagnose
from trials.outcome import Outcome, first_cause, late_rank, of_exit_code
from trials.performance import performance
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
    reports, outcomes = [], {}
    for rank in range(trial.plan.world_size):
        path = rank_path(folder, rank)
        if path.exists():
            report = RankReport.model_validate_json(path.read_text("utf-8"))
            reports.append(report)
            outcomes[rank] = report.outcome
        elif ended_by is None:
            outcomes[rank] = of_exit_code(exit_codes.get(rank, 1), rank, _tail(folder, rank))
    outcome = ended_by or first_cause(list(outcomes.values()))
    if outcome.kind == "collective_timeout":
        outcome = _naming_the_late(folder, outcome, outcomes)
    result = TrialResult(
        trial_id=trial.trial_id,
        outcome=outcome,
        ranks=tuple(reports),
        findings=tuple(diagnose(trial.plan, tuple(reports), same_batch=trial.same_batch)),
        wall_seconds=wall_seconds,
    )
    reached = performance(trial, result.ranks, result.step_seconds)
    result = result.model_copy(update={"performance": reached})
    write_atomically(result_path(folder), result.model_dump_json())
    return result


def _tail(folder: Path, rank: int) -> str:
    path = log_path(folder, rank)
    return path.read_text("utf-8", errors="replace")[-TAIL:] if path.exists() else ""


def phases(folder: Path, world: int) -> dict[int, str]:
    """The phase in which each rank was seen last."""
    return {rank: phase for rank, (phase, _) in _seen(folder, world).items()}


def progress(folder: Path, world: int) -> dict[int, int]:
    """How many phases each rank has entered."""
    return {rank: count for rank, (_, count) in _seen(folder, world).items()}


def _seen(folder: Path, world: int) -> dict[int, tuple[str, int]]:
    found = {}
    for rank in range(world):
        path = folder / f"phase-{rank}"
        words = path.read_text("utf-8").split() if path.exists() else []
        found[rank] = (words[0], int(words[-1])) if len(words) == 2 else ("load", 0)
    return found


def _naming_the_late(folder: Path, outcome: Outcome, by_rank: dict[int, Outcome]) -> Outcome:
    """The outcome of a collective that timed out, with the rank that did not come."""
    late = late_rank(by_rank, progress(folder, len(by_rank)))
    if late is None:
        return outcome
    phase = phases(folder, len(by_rank))[late]
    message = f"rank {late} was late, last seen in {phase}; {outcome.message}"
    return outcome.model_copy(update={"rank": late, "message": message})
