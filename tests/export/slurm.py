"""A Slurm of two nodes with eight GPUs each, on this machine, for the time of a test."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo")
NODES = 2


def _tool(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def available() -> bool:
    """Whether Slurm is installed and may be started (its daemons want root)."""
    return os.geteuid() == 0 and all(_tool(name) for name in NEEDED)


def _ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _configure(folder: Path) -> Path:
    host = socket.gethostname().split(".")[0]
    controller, *nodes = _ports(1 + NODES)
    for name in ("spool", "state", "dev"):
        (folder / name).mkdir()
    for i in range(8):
        (folder / "dev" / f"nvidia{i}").touch()
    lines = [
        "ClusterName=test",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={controller}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.sock",
        "CredType=cred/munge",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "SlurmdParameters=config_overrides",
        "MpiDefault=none",
        "SwitchType=switch/none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "ReturnToService=2",
        "GresTypes=gpu",
    ]
    for i, port in enumerate(nodes):
        lines.append(
            f"NodeName=node-{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=128 "
            "Boards=1 SocketsPerBoard=2 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=20000 "
            "Gres=gpu:8 State=UNKNOWN"
        )
    lines.append("PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    config = folder / "slurm.conf"
    config.write_text("\n".join(lines) + "\n")
    (folder / "gres.conf").write_text(
        f"NodeName=node-[0-{NODES - 1}] Name=gpu File={folder}/dev/nvidia[0-7]\n"
    )
    return config


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Starts the daemons in the foreground; yields the environment of a client."""
    folder.chmod(0o755)
    config = _configure(folder)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    munge = [f"--{n}={folder}/munge.{n}" for n in ("pid-file", "log-file", "seed-file")]
    commands = [
        ["munged", "--foreground", "--force", f"--key-file={key}", *munge,
         f"--socket={folder}/munge.sock"],
        ["slurmctld", "-D", "-f", str(config)],
        *(["slurmd", "-D", "-N", f"node-{i}", "-f", str(config)] for i in range(NODES)),
    ]  # fmt: skip
    environment = os.environ | {"SLURM_CONF": str(config)}
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            name = _tool(command[0])
            assert name is not None
            with (folder / f"{command[0]}-{len(daemons)}.out").open("wb") as log:
                daemons.append(
                    subprocess.Popen([name, *command[1:]], stdout=log, stderr=log, env=environment)
                )
            if command[0] == "munged":
                _until((folder / "munge.sock").exists)
        _until(lambda: _idle(environment) == NODES)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(timeout=20)


def _idle(environment: dict[str, str]) -> int:
    command = ["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return len(out.stdout.split())


def _until(holds: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("Slurm did not come up")
        time.sleep(0.05)
