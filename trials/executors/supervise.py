"""Watches over the ranks of one trial on this machine: starts, waits, ends, collects.

Runs in a process of its own, leader of its own session, so that a dead service does not end the
trial and one signal to the group ends it whole.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trials.executors.collect import collect, log_path, phases, progress
from trials.outcome import ENDED_HERE, Outcome
from trials.trial_file import TrialFile

GRACE_S = 5.0
"""How long ranks may go on after the first has failed: their errors may tell more."""
POLL_S = 0.01

Start = Callable[[TrialFile, Path, int, dict[str, str]], int]
"""Starts a rank with these variables; returns its process id."""


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def rank_environment(rank: int, world: int, port: int) -> dict[str, str]:
    """What a rank on this machine needs to find the others."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "LOCAL_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def start_cold(trial: TrialFile, folder: Path, rank: int, env: dict[str, str]) -> int:
    """A fresh interpreter."""
    with log_path(folder, rank).open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "trials.worker", str(folder)],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return child.pid


def start_forked(trial: TrialFile, folder: Path, rank: int, env: dict[str, str]) -> int:
    """A copy of this process, whose imports are done. Not after a GPU was touched."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(log_path(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(env)
        from trials import worker

        code = worker.main(folder, rank, trial.plan.world_size, rank)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def supervise(folder: Path, start: Start) -> None:
    """Runs the trial of a folder to its result."""
    from trials.worker import read_trial

    (folder / "supervisor.pid").write_text(str(os.getpid()), "utf-8")
    trial = read_trial(folder)
    world, began = trial.plan.world_size, time.monotonic()
    port = free_port()
    signal.signal(signal.SIGTERM, _interrupt)
    pids: dict[int, int] = {}
    ended_by: Outcome | None = None
    codes: dict[int, int] = {}
    try:
        for rank in range(world):
            pids[rank] = start(trial, folder, rank, rank_environment(rank, world, port))
        ended_by = wait_for_ranks(trial, folder, pids, codes, began)
    except KeyboardInterrupt:
        ended_by = Outcome(kind="cancelled", message="cancelled on request")
    end_ranks(pids, codes)
    end_group()
    collect(folder, trial, codes, wall_seconds=time.monotonic() - began, ended_by=ended_by)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class News:
    """What is said and heard of ranks elsewhere; a trial on one machine has none."""

    def failed(self) -> None:
        """A rank here has failed."""

    def heard(self) -> Outcome | bool:
        """What ends the trial from outside, or whether a rank elsewhere has failed."""
        return False


def wait_for_ranks(
    trial: TrialFile,
    folder: Path,
    pids: dict[int, int],
    codes: dict[int, int],
    began: float,
    news: News | None = None,
) -> Outcome | None:
    """Until all ranks are done, or one has failed for a while, or time is up."""
    told = news or News()
    failed_at: float | None = None
    while len(codes) < len(pids):
        for rank, pid in pids.items():
            if rank in codes:
                continue
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[rank] = os.waitstatus_to_exitcode(status)
                if codes[rank] != 0 and failed_at is None:
                    failed_at = time.monotonic()
                    told.failed()
        heard, now = told.heard(), time.monotonic()
        if isinstance(heard, Outcome):
            return heard
        if heard and failed_at is None:
            failed_at = now
        if failed_at is not None and now - failed_at > GRACE_S:
            return None
        if now - began > trial.timeout_s:
            return _hang(trial, folder)
        time.sleep(POLL_S)
    return None


def _hang(trial: TrialFile, folder: Path) -> Outcome:
    where = phases(folder, trial.plan.world_size)
    came = progress(folder, trial.plan.world_size)
    late = min(came, key=lambda rank: (came[rank], rank))
    seen = ", ".join(f"rank {rank} in {phase}" for rank, phase in sorted(where.items()))
    return Outcome(
        kind="hang",
        message=f"not done after {trial.timeout_s:.0f} s: {seen}",
        phase=where[late],
        rank=late,
    )


def end_ranks(pids: dict[int, int], codes: dict[int, int]) -> None:
    """Ends what still runs and reaps it; a rank ended here has no exit code of its own."""
    for rank, pid in pids.items():
        if rank not in codes:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
            codes[rank] = ENDED_HERE


def end_group() -> None:
    """Ends what ranks have started and left, such as a compiler; this process leads their group."""
    if os.getpgid(0) == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    supervise(Path(sys.argv[1]), start_cold)
