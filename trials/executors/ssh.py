"""Trials on hosts that are reached by ssh and share a folder: clusters without a scheduler.

Every host runs a supervisor of its own ranks (`trials.executors.node`), which starts once however
often it is asked, so that submitting again after a crash is safe. Where a trial is, and its result,
are read from the shared folder; ssh is called to start it, and to end what does not listen.
"""

import fcntl
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trials.executors.collect import collect, log_path
from trials.executors.node import CANCEL, Layout, beat_path, layout_path, pid_path
from trials.executors.protocol import State, folder_of
from trials.outcome import Outcome
from trials.preflight import Refused, check, check_same
from trials.result import TrialResult, read_result, result_path
from trials.step_log import RankSteps, steps_so_far
from trials.trial_file import TrialFile, read_trial_file, write_atomically, write_trial

CALL_LIMIT_S = 60.0
SILENT_S = 60.0
"""After so long without a sign of life of its first node a trial counts as unknown."""

CANCEL_S = 20.0
"""How long supervisors may take to end their ranks and to write the result."""

PATIENCE = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""Nobody is there to type a password."""


@dataclass(frozen=True)
class SshSettings:
    """The service's own configuration; nothing of it comes from a request."""

    root: Path
    """A folder that this machine and all hosts see under the same path."""
    hosts: tuple[str, ...]
    """As ssh calls them, such as user@node-1; a trial takes the first ones."""
    ranks_per_host: int
    config: Path | None = None
    """ssh's configuration file, where it is not the user's own."""
    python: str = sys.executable
    """The interpreter of the worker on the hosts."""
    setup: tuple[str, ...] = ()
    """Shell lines before the worker, such as module load cuda."""
    master_addr: str | None = None
    """How the hosts call the first one, where that is not its name."""


class SshExecutor:
    """Starts a supervisor on each host of a trial."""

    name = "ssh"

    def __init__(self, settings: SshSettings):
        self.settings = settings
        settings.root.mkdir(parents=True, exist_ok=True)

    @property
    def ranks(self) -> int:
        """All hosts full."""
        return len(self.settings.hosts) * self.settings.ranks_per_host

    def check(self, trial: TrialFile) -> None:
        """Ranks, and whether they fill hosts evenly; libraries where the hosts' Python is ours."""
        check(trial, ranks=self.ranks, libraries=self.settings.python == sys.executable)
        self._layout(trial)

    def submit(self, trial: TrialFile) -> None:
        """Starts the trial on each of its hosts, unless it has ended; one that it runs on already
        starts nothing."""
        self.check(trial)
        folder = folder_of(self.settings.root, trial.trial_id)
        with (self.settings.root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            check_same(folder, trial)
            if result_path(folder).exists():
                return
            write_trial(folder, trial)
            layout = self._layout(trial)
            write_atomically(layout_path(folder), layout.model_dump_json())
            for node, host in enumerate(self.settings.hosts[: layout.nodes]):
                try:
                    self._call(host, self._start(folder, node))
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    self._end(folder, Outcome(kind="launch_failure", message=f"{host}: {error}"))
                    return

    def _layout(self, trial: TrialFile) -> Layout:
        world, full = trial.plan.world_size, self.settings.ranks_per_host
        nodes = -(-world // full)
        per_node = -(-world // nodes)
        if nodes * per_node != world:
            raise Refused(f"{world} ranks do not fill {nodes} hosts evenly")
        first = self.settings.hosts[0].rpartition("@")[2]
        return Layout(
            nodes=nodes, per_node=per_node, master_addr=self.settings.master_addr or first
        )

    def _start(self, folder: Path, node: int) -> str:
        """The command that starts a supervisor and leaves it to itself."""
        package = shlex.quote(str(Path(__file__).parents[2]))
        python = shlex.quote(self.settings.python)
        lines = [
            *self.settings.setup,
            f"export PYTHONPATH={package}:$PYTHONPATH OMP_NUM_THREADS=1",
            f"exec {python} -m trials.executors.node {shlex.quote(str(folder))} {node}",
        ]
        script = folder / f"node-{node}.sh"
        script.write_text("\n".join(lines) + "\n", "utf-8")
        said = shlex.quote(str(folder / f"node-{node}.txt"))
        return f"setsid nohup bash {shlex.quote(str(script))} < /dev/null >> {said} 2>&1 &"

    def state(self, trial_id: str) -> State:
        """The result ends it; signs of life of its first node run it."""
        folder = folder_of(self.settings.root, trial_id)
        if result_path(folder).exists():
            return State.ENDED
        beat = beat_path(folder, 0)
        if beat.exists() and _age(beat, self.settings.root) < SILENT_S:
            return State.RUNNING
        started = layout_path(folder)
        if started.exists() and _age(started, self.settings.root) < SILENT_S:
            return State.QUEUED
        return State.ENDED if result_path(folder).exists() else State.UNKNOWN

    def cancel(self, trial_id: str) -> None:
        """Supervisors end their ranks and the first writes the result; what is left is killed."""
        folder = folder_of(self.settings.root, trial_id)
        if self.state(trial_id) not in (State.QUEUED, State.RUNNING):
            return
        (folder / CANCEL).touch()
        until = time.monotonic() + CANCEL_S
        while time.monotonic() < until and not result_path(folder).exists():
            time.sleep(0.1)
        self._end(folder, Outcome(kind="cancelled", message="cancelled on request"))

    def _end(self, folder: Path, outcome: Outcome) -> None:
        """Kills what still runs of a trial and writes its result, where there is none yet."""
        (folder / CANCEL).touch()
        if result_path(folder).exists():
            return
        for node, host in enumerate(self.settings.hosts):
            pid = pid_path(folder, node)
            text = pid.read_text("utf-8") if pid.exists() else ""
            if text.isdecimal():
                with suppress(RuntimeError, subprocess.TimeoutExpired):
                    self._call(host, f"kill -9 -- -{text} 2>/dev/null || true")
        if not result_path(folder).exists():
            collect(folder, read_trial_file(folder), {}, wall_seconds=0.0, ended_by=outcome)

    def logs(self, trial_id: str) -> str:
        """The supervisors' and the ranks' outputs, one after the other."""
        folder = folder_of(self.settings.root, trial_id)
        paths = [*sorted(folder.glob("node-*.txt"))]
        paths += [p for rank in range(self.ranks) if (p := log_path(folder, rank)).exists()]
        parts = [(p.stem, p.read_text("utf-8", errors="replace")) for p in paths]
        return "\n".join(f"== {name} ==\n{text}" for name, text in parts if text)

    def steps(self, trial_id: str, most: int) -> tuple[RankSteps, ...]:
        """From the ranks' own files."""
        return steps_so_far(folder_of(self.settings.root, trial_id), most)

    def result(self, trial_id: str) -> TrialResult | None:
        """The result file."""
        return read_result(folder_of(self.settings.root, trial_id))

    def _call(self, host: str, command: str) -> str:
        config = () if self.settings.config is None else ("-F", str(self.settings.config))
        done = subprocess.run(
            ["ssh", *config, *PATIENCE, host, command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CALL_LIMIT_S,
            check=False,
        )
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
            raise RuntimeError(said[-1500:])
        return done.stdout


def _age(path: Path, root: Path) -> float:
    """Seconds since a file was touched, by the clock of the file system that both are on."""
    now = root / ".now"
    now.touch()
    return now.stat().st_mtime - path.stat().st_mtime
