"""Hosts that are reached by ssh: one real sshd on this machine, under several names."""

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

COMMANDS = ("sshd", "ssh", "ssh-keygen")

SSHD = """Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/sshd.pid
PasswordAuthentication no
StrictModes no
UsePAM no
"""

SSH = """Host host-*
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile {folder}/known
  LogLevel ERROR
"""


def missing() -> list[str]:
    """Commands that this machine lacks."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return [name for name in COMMANDS if shutil.which(name, path=path) is None]


@dataclass
class SshHosts:
    """Start it, give `config` to ssh, stop it. Every name that begins with host- is this one."""

    folder: Path
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def config(self) -> Path:
        """ssh's configuration."""
        return self.folder / "ssh_config"

    def start(self) -> None:
        """Keys, configurations, the server; TimeoutError where it does not listen."""
        self.folder.mkdir(parents=True, exist_ok=True)
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
        for name in ("host_key", "key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)],
                check=True,
                stdin=subprocess.DEVNULL,
            )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        values = {"port": port, "folder": self.folder}
        self.config.write_text(SSH.format(**values))
        (self.folder / "sshd_config").write_text(SSHD.format(**values))
        command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError((self.folder / "sshd.log").read_text())

    def stop(self) -> None:
        """Ends the server."""
        for process in self.processes:
            process.terminate()
            process.wait(10)
