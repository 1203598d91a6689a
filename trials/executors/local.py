"""Trials on this machine: processes over gloo on its CPU, or over NCCL on its GPUs."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trials.executors.collect import collect
from trials.executors.protocol import State, folder_of
from trials.outcome import Outcome
from trials.preflight import check, check_same
from trials.result import TrialResult, read_result, result_path
from trials.step_log import RankSteps, steps_so_far
from trials.trial_file import TrialFile, read_trial_file, write_trial

START_S = 300.0
"""How long the pool may take for its imports, on a busy machine; one that died is seen at once."""

CANCEL_S = 20.0
"""How long a supervisor may take to end its ranks and to write the result."""


class LocalExecutor:
    """Starts a supervisor for each trial, warm from the pool or cold."""

    name = "local"

    def __init__(self, root: Path, *, ranks: int | None = None, warm: bool = True):
        self.root = root
        self._ranks = ranks or os.cpu_count() or 1
        self.warm = warm
        self._closing = False
        root.mkdir(parents=True, exist_ok=True)

    @property
    def ranks(self) -> int:
        """Given, or as many as there are processors."""
        return self._ranks

    def check(self, trial: TrialFile) -> None:
        """Ranks, and what a worker imports: it is this machine's."""
        check(trial, ranks=self.ranks, libraries=True)

    def submit(self, trial: TrialFile) -> None:
        """Starts the trial unless its folder shows that it was started."""
        self.check(trial)
        folder = folder_of(self.root, trial.trial_id)
        with self._locked():
            check_same(folder, trial)
            if self.state(trial.trial_id) is not State.UNKNOWN:
                return
            write_trial(folder, trial)
            if self.warm and trial.device != "gpu":
                pid = self._start_warm(folder)
            else:
                pid = _start_cold(folder)
            (folder / "supervisor.pid").write_text(str(pid), "utf-8")

    def state(self, trial_id: str) -> State:
        """From the folder: a result ends it, a living supervisor runs it."""
        folder = folder_of(self.root, trial_id)
        if result_path(folder).exists():
            return State.ENDED
        pid = _pid(folder)
        if pid is not None and _alive(pid, folder):
            return State.RUNNING
        return State.ENDED if result_path(folder).exists() else State.UNKNOWN

    def cancel(self, trial_id: str) -> None:
        """The supervisor ends its ranks and writes the result; what is left is killed."""
        folder = folder_of(self.root, trial_id)
        pid = _pid(folder)
        if pid is None or self.state(trial_id) is not State.RUNNING:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        limit = time.monotonic() + CANCEL_S
        while time.monotonic() < limit and self.state(trial_id) is State.RUNNING:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if not result_path(folder).exists():
            # It was hit before it could listen, or was too slow: its result is written for it.
            trial = read_trial_file(folder)
            ended_by = Outcome(kind="cancelled", message="cancelled on request")
            collect(folder, trial, {}, wall_seconds=0.0, ended_by=ended_by)

    def logs(self, trial_id: str) -> str:
        """The ranks' outputs, one after the other."""
        folder = folder_of(self.root, trial_id)
        parts = []
        for path in sorted(folder.glob("log-*.txt")):
            parts.append(f"== {path.stem} ==\n{path.read_text('utf-8', errors='replace')}")
        return "\n".join(parts)

    def steps(self, trial_id: str, most: int) -> tuple[RankSteps, ...]:
        """From the ranks' own files."""
        return steps_so_far(folder_of(self.root, trial_id), most)

    def result(self, trial_id: str) -> TrialResult | None:
        """The result file."""
        return read_result(folder_of(self.root, trial_id))

    def close(self) -> None:
        """Ends the pool, also one that is still starting; trials that run go on."""
        self._closing = True
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self._socket))
            s.sendall(b"stop")

    @property
    def _socket(self) -> Path:
        return self.root / "pool.sock"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One submit at a time over all processes that share the root."""
        with (self.root / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _start_warm(self, folder: Path) -> int:
        with self._connected() as s:
            s.sendall(str(folder).encode())
            return int(s.recv(64))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        limit = time.monotonic() + START_S
        started: subprocess.Popen[bytes] | None = None
        while True:
            s = socket.socket(socket.AF_UNIX)
            try:
                s.connect(str(self._socket))
                break
            except OSError:
                s.close()
            if self._closing:
                if started is not None:
                    started.kill()
                raise RuntimeError("the executor is being closed")
            if started is None:
                self._socket.unlink(missing_ok=True)
                started = self._start_pool()
            if started.poll() is not None or time.monotonic() > limit:
                tail = (self.root / "pool.log").read_text("utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"the pool of warm workers did not start: {tail}")
            time.sleep(0.02)
        with s:
            yield s

    def _start_pool(self) -> "subprocess.Popen[bytes]":
        with (self.root / "pool.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "trials.executors.pool", str(self._socket)],
                env=_with_this_code(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _with_this_code() -> dict[str, str]:
    """This environment, in which the package is found also where it is not installed."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _start_cold(folder: Path) -> int:
    with (folder / "supervisor.txt").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "trials.executors.supervise", str(folder)],
            env=_with_this_code(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return child.pid


def _pid(folder: Path) -> int | None:
    path = folder / "supervisor.pid"
    try:
        return int(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _alive(pid: int, folder: Path) -> bool:
    """Whether the process lives; a zombie, or one that took over the number, does not count."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace").rsplit(")", 1)
        began_at = Path(f"/proc/{pid}").stat().st_mtime
        written = (folder / "trial.json").stat().st_mtime
    except OSError:
        return False
    return fields[1].split()[0] != "Z" and began_at > written - 1.0
