"""Trials on a Slurm cluster, through sbatch, squeue and scancel.

The trial's id is the job's name and is looked up before a submit, so that a service that was
killed between sbatch and its own note does not start a second job. What Slurm has forgotten is
not failed: the result file decides.
"""

import fcntl
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from trials.executors.collect import collect
from trials.executors.protocol import State, folder_of
from trials.outcome import Outcome
from trials.preflight import Refused, check, check_same
from trials.result import TrialResult, rank_path, read_result, result_path
from trials.step_log import RankSteps, steps_so_far
from trials.trial_file import TrialFile, read_trial_file, write_trial

WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED"}
RUNNING = {"RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING"}
DONE = {"COMPLETED", "FAILED"}
"""The job ran to its end, perhaps in an image whose last line could not write the result."""
CALL_LIMIT_S = 60.0


@dataclass(frozen=True)
class SlurmSettings:
    """The service's own configuration; nothing of it comes from a request."""

    root: Path
    """A folder that all nodes see."""
    nodes: int
    ranks_per_node: int
    partition: str | None = None
    account: str | None = None
    gres_per_node: str | None = None
    """Such as gpu:8; {ranks} stands for the ranks on a node."""
    image: str | None = None
    """Container of the workers, for clusters whose Slurm has the pyxis plugin; `python` and this
    package are then those of the image."""
    python: str = sys.executable
    """The interpreter of the worker on the nodes."""
    setup: tuple[str, ...] = ()
    """Shell lines before the worker: modules, a container."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the Slurm commands, such as SLURM_CONF."""


class SlurmExecutor:
    """Submits a job for each trial."""

    name = "slurm"

    def __init__(self, settings: SlurmSettings):
        self.settings = settings
        settings.root.mkdir(parents=True, exist_ok=True)

    @property
    def ranks(self) -> int:
        """All nodes full."""
        return self.settings.nodes * self.settings.ranks_per_node

    def check(self, trial: TrialFile) -> None:
        """Ranks, and whether they fill nodes evenly; libraries where the nodes' Python is ours."""
        own = self.settings.python == sys.executable and self.settings.image is None
        check(trial, ranks=self.ranks, libraries=own)
        self._shape(trial)

    def submit(self, trial: TrialFile) -> None:
        """Submits the trial's job unless there is one of its name, or its result."""
        self.check(trial)
        folder = folder_of(self.settings.root, trial.trial_id)
        with (self.settings.root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            check_same(folder, trial)
            if self.state(trial.trial_id) is not State.UNKNOWN:
                return
            if (folder / "job").exists():
                return  # submitted, forgotten by Slurm, perhaps still running: the file will tell
            write_trial(folder, trial)
            script = folder / "job.sh"
            script.write_text(self.script(trial, folder), "utf-8")
            printed = self._call("sbatch", "--parsable", str(script))
            (folder / "job").write_text(printed.strip().split(";")[0], "utf-8")

    def _shape(self, trial: TrialFile) -> tuple[int, int]:
        """Nodes, and ranks on each."""
        world = trial.plan.world_size
        nodes = -(-world // self.settings.ranks_per_node)
        per_node = -(-world // nodes)
        if nodes * per_node != world:
            raise Refused(f"{world} ranks do not fill {nodes} nodes evenly")
        return nodes, per_node

    def script(self, trial: TrialFile, folder: Path) -> str:
        """The batch script of a trial."""
        known = self.settings
        nodes, per_node = self._shape(trial)
        minutes = int(trial.timeout_s // 60) + 2
        options = {
            "job-name": trial.trial_id,
            "comment": trial.trial_id,
            "nodes": nodes,
            "ntasks-per-node": per_node,
            "time": minutes,
            "output": folder / "log-0.txt",
            "open-mode": "append",
            "partition": known.partition,
            "account": known.account,
            "gres": known.gres_per_node and known.gres_per_node.format(ranks=per_node),
        }
        lines = ["#!/bin/bash"]
        lines += [f"#SBATCH --{name}={value}" for name, value in options.items() if value]
        lines += ["#SBATCH --no-requeue", *known.setup]
        lines += [
            'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            *(
                [f"export MASTER_ADDR={known.environment['MASTER_ADDR']}"]
                if "MASTER_ADDR" in known.environment
                else []
            ),
            "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
            f"export LOCAL_WORLD_SIZE={per_node} LOCAL_SIZE={per_node} OMP_NUM_THREADS=1",
            f"export PYTHONPATH={shlex.quote(str(Path(__file__).parents[2]))}:$PYTHONPATH",
            f"srun --kill-on-bad-exit=1 {self._container()}{shlex.quote(known.python)} "
            f"-m trials.worker {shlex.quote(str(folder))}",
            "code=$?",
            f"{shlex.quote(known.python)} -m trials.executors.slurm "
            f"{shlex.quote(str(folder))} $code",
            "exit $code",
        ]
        return "\n".join(lines) + "\n"

    def _container(self) -> str:
        """Options of srun for the image, as the pyxis plugin takes them."""
        if self.settings.image is None:
            return ""
        seen = f"{self.settings.root}:{self.settings.root}"
        image = shlex.quote(self.settings.image)
        return f"--container-image={image} --container-mounts={shlex.quote(seen)} "

    def state(self, trial_id: str) -> State:
        """The result file first, then Slurm's answer."""
        folder = folder_of(self.settings.root, trial_id)
        if result_path(folder).exists():
            return State.ENDED
        seen = self._job_state(trial_id)
        if seen in WAITING:
            return State.QUEUED
        if seen in RUNNING:
            return State.RUNNING
        if seen is not None:
            self._conclude(trial_id, seen)
            return State.ENDED
        return State.UNKNOWN

    def cancel(self, trial_id: str) -> None:
        """Ends the job; its result says so."""
        if self.state(trial_id) in (State.QUEUED, State.RUNNING):
            self._call("scancel", f"--name={trial_id}")
            self._conclude(trial_id, "CANCELLED")

    def logs(self, trial_id: str) -> str:
        """What all ranks printed, mixed."""
        path = folder_of(self.settings.root, trial_id) / "log-0.txt"
        return path.read_text("utf-8", errors="replace") if path.exists() else ""

    def steps(self, trial_id: str, most: int) -> tuple[RankSteps, ...]:
        """From the ranks' own files."""
        return steps_so_far(folder_of(self.settings.root, trial_id), most)

    def result(self, trial_id: str) -> TrialResult | None:
        """The result file."""
        return read_result(folder_of(self.settings.root, trial_id))

    def _job_state(self, trial_id: str) -> str | None:
        """Slurm's word for the newest job of that name, None where it knows none."""
        printed = self._call("squeue", "--json")
        jobs = [job for job in json.loads(printed)["jobs"] if job["name"] == trial_id]
        if not jobs:
            return None
        newest = max(jobs, key=lambda job: int(job["job_id"]))
        word = newest["job_state"]  # a list from Slurm 23 on
        return str(word[0] if isinstance(word, list) else word)

    def _conclude(self, trial_id: str, word: str) -> None:
        """Writes the result of a job that ended without writing its own."""
        folder = folder_of(self.settings.root, trial_id)
        if result_path(folder).exists():
            return
        if word in DONE and any(folder.glob("rank-*.json")):
            conclude(folder, 0 if word == "COMPLETED" else 1)
            return
        kinds = {
            "CANCELLED": Outcome(kind="cancelled", message="cancelled on request"),
            "TIMEOUT": Outcome(kind="hang", message="Slurm's time limit passed"),
            "OUT_OF_MEMORY": Outcome(kind="out_of_host_memory", message="Slurm: OUT_OF_MEMORY"),
        }
        other = Outcome(
            kind="launch_failure", message=f"Slurm: {word}. {self.logs(trial_id)[-1500:]}"
        )
        trial = read_trial_file(folder)
        collect(folder, trial, {}, wall_seconds=0.0, ended_by=kinds.get(word, other))

    def _call(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env={**os.environ, **self.settings.environment},
            capture_output=True,
            text=True,
            timeout=CALL_LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


def conclude(folder: Path, code: int) -> None:
    """The last line of the job: collects the reports of all ranks on the shared folder."""
    trial = read_trial_file(folder)
    codes = {
        rank: 0 if rank_path(folder, rank).exists() else code
        for rank in range(trial.plan.world_size)
    }
    collect(folder, trial, codes, wall_seconds=0.0)


if __name__ == "__main__":
    conclude(Path(sys.argv[1]), int(sys.argv[2]))
