"""Where this process may run trials, as its own settings say. Nothing of it is in a request."""

import sys
import threading
from dataclasses import dataclass

from api.settings import Settings
from planner.errors import Problem, RequestError
from planner.request.pointers import did_you_mean
from trials.executors.local import LocalExecutor
from trials.executors.protocol import Executor
from trials.executors.slurm import SlurmExecutor, SlurmSettings
from trials.executors.ssh import SshExecutor, SshSettings
from trials.preflight import missing_libraries


@dataclass(frozen=True)
class Place:
    """One executor, by name."""

    name: str
    ranks: int
    """The most that a trial can have."""
    at_a_time: int
    """Trials that run together."""
    lacks: list[str]
    """Libraries that its workers would miss, as far as this process can tell."""


class Executors:
    """The executors of this process; each is made when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._made: dict[str, Executor] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """Those that the settings switch on."""
        return self.settings.executors

    def at_a_time(self, name: str) -> int:
        """Trials that run together on an executor."""
        settings = self.settings
        # Trials over ssh all take the first hosts: two at a time would share them.
        return {"slurm": settings.slurm_trials, "ssh": 1}.get(name, settings.local_trials)

    def places(self) -> list[Place]:
        """All of them."""
        return [Place(n, self.get(n).ranks, self.at_a_time(n), self.lacking(n)) for n in self.names]

    def lacking(self, name: str) -> list[str]:
        """Libraries that the workers would miss; empty also where their Python is another."""
        settings = self.settings
        elsewhere = {
            "slurm": settings.slurm_python or settings.slurm_image,
            "ssh": settings.ssh_python,
        }
        return [] if elsewhere.get(name) else missing_libraries()

    def get(self, name: str) -> Executor:
        """The executor of a name; RequestError for one that is not switched on here."""
        if name not in self.names:
            wanted = did_you_mean(name, self.names) if self.names else "none is switched on"
            raise RequestError([Problem("/executor", f"got {name!r}", wanted)])
        with self._lock:
            if name not in self._made:
                make = {"slurm": self._slurm, "ssh": self._ssh}.get(name, self._local)
                self._made[name] = make()
            return self._made[name]

    def _local(self) -> Executor:
        settings = self.settings
        return LocalExecutor(settings.var.resolve() / "trials", ranks=settings.local_ranks or None)

    def _slurm(self) -> Executor:
        settings = self.settings
        assert settings.slurm_root is not None
        given = {"MASTER_ADDR": settings.slurm_master_addr} if settings.slurm_master_addr else {}
        return SlurmExecutor(
            SlurmSettings(
                root=settings.slurm_root.resolve(),
                nodes=settings.slurm_nodes,
                ranks_per_node=settings.slurm_ranks_per_node,
                partition=settings.slurm_partition,
                account=settings.slurm_account,
                gres_per_node=settings.slurm_gres,
                image=settings.slurm_image,
                python=settings.slurm_python or sys.executable,
                setup=tuple((settings.slurm_setup or "").splitlines()),
                environment=given,
            )
        )

    def _ssh(self) -> Executor:
        settings = self.settings
        assert settings.ssh_root is not None
        hosts, slots = zip(*settings.ssh_hosts, strict=True)
        return SshExecutor(
            SshSettings(
                root=settings.ssh_root.resolve(),
                hosts=hosts,
                ranks_per_host=slots[0],
                config=settings.ssh_config,
                python=settings.ssh_python or sys.executable,
                setup=tuple((settings.ssh_setup or "").splitlines()),
                master_addr=settings.ssh_master_addr,
            )
        )

    def close(self) -> None:
        """Ends what waits for trials; trials that run go on."""
        for executor in self._made.values():
            if isinstance(executor, LocalExecutor):
                executor.close()
