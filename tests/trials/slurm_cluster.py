"""A Slurm cluster on this machine: munged, slurmctld and several slurmd, all our own."""

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")

CONFIG = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
SlurmdTimeout=30
KillWait=2
MinJobAge=300
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName=node-[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4 \
Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=2000 State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """Commands of Slurm that this machine lacks."""
    return [name for name in COMMANDS if shutil.which(name) is None]


@dataclass
class SlurmCluster:
    """Start it, use `environment` for the commands, stop it."""

    folder: Path
    nodes: int = 2
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        for name in ("spool", "state"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        port = free_ports(self.nodes + 1)
        host = socket.gethostname().split(".")[0]
        config = CONFIG.format(
            host=host,
            port=port,
            folder=self.folder,
            nodes=self.nodes,
            first=port + 1,
            last=port + self.nodes,
        )
        (self.folder / "slurm.conf").write_text(config)
        self._run(
            "munged",
            "--foreground",
            f"--key-file={key}",
            f"--socket={self.folder}/munge.sock",
            f"--pid-file={self.folder}/munged.pid",
            f"--log-file={self.folder}/munged.log",
            f"--seed-file={self.folder}/munge.seed",
            "--force",
        )
        wait_for((self.folder / "munge.sock").exists)
        conf = str(self.folder / "slurm.conf")
        self._run("slurmctld", "-D", "-f", conf)
        for node in range(1, self.nodes + 1):
            self._run("slurmd", "-D", "-N", f"node-{node}", "-f", conf)
        wait_for(self._idle)

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _run(self, *command: str) -> None:
        with (self.folder / f"{command[0]}.out").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **self.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _idle(self) -> bool:
        done = subprocess.run(
            ["sinfo", "-h", "-t", "idle", "-o", "%D"],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return sum(int(n) for n in done.stdout.split()) == self.nodes


def free_ports(count: int) -> int:
    """The first of so many neighbouring free ports."""
    for first in range(17000, 30000, 50):
        try:
            for port in range(first, first + count):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise RuntimeError("no free ports")


def wait_for(happened: object, limit_s: float = 20) -> None:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if happened():  # type: ignore[operator]
            return
        time.sleep(0.05)
    raise TimeoutError("the cluster did not start")
