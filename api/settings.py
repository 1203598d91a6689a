"""What the environment says about this process. Nothing else in the project reads it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self


class SettingsError(ValueError):
    """An environment variable that cannot be used."""


@dataclass(frozen=True)
class Settings:
    """Every setting of the service, with its default."""

    host: str = "127.0.0.1"
    """MESHWRIGHT_HOST: address to listen on."""
    port: int = 8321
    """MESHWRIGHT_PORT: port to listen on."""
    var: Path = Path("var")
    """MESHWRIGHT_VAR: folder of the embedded database."""
    database_url: str = ""
    """MESHWRIGHT_DATABASE_URL: SQLAlchemy URL; empty is SQLite in the folder above."""
    api_key: str | None = None
    """MESHWRIGHT_API_KEY: what callers of /v1 must send; unset lets everybody in."""
    max_body_bytes: int = 4 * 2**20
    """MESHWRIGHT_MAX_BODY_BYTES: largest request body."""
    search_workers: int = 1
    """MESHWRIGHT_SEARCH_WORKERS: searches that this process runs at a time."""
    lease_seconds: float = 10.0
    """MESHWRIGHT_LEASE_SECONDS: silence after which another process takes a worker's jobs over."""

    dry_run_workers: int = 1
    """MESHWRIGHT_DRY_RUN_WORKERS: dry runs that this process runs at a time."""
    executors: tuple[str, ...] = ("local",)
    """MESHWRIGHT_EXECUTORS: where trials may run, separated by commas: local, slurm, ssh."""
    local_ranks: int = 0
    """MESHWRIGHT_LOCAL_RANKS: ranks of a trial on this machine; 0 is its processors."""
    local_trials: int = 1
    """MESHWRIGHT_LOCAL_TRIALS: trials on this machine at a time; more disturb each other."""
    slurm_trials: int = 8
    """MESHWRIGHT_SLURM_TRIALS: trials in Slurm's hands at a time."""
    slurm_root: Path | None = None
    """MESHWRIGHT_SLURM_ROOT: a folder that all nodes see."""
    slurm_nodes: int = 0
    """MESHWRIGHT_SLURM_NODES: nodes that a trial may have."""
    slurm_ranks_per_node: int = 8
    """MESHWRIGHT_SLURM_RANKS_PER_NODE: GPUs of a node."""
    slurm_partition: str | None = None
    """MESHWRIGHT_SLURM_PARTITION"""
    slurm_account: str | None = None
    """MESHWRIGHT_SLURM_ACCOUNT"""
    slurm_gres: str | None = None
    """MESHWRIGHT_SLURM_GRES: of each node, such as gpu:{ranks}."""
    slurm_image: str | None = None
    """MESHWRIGHT_SLURM_IMAGE: container of the workers (pyxis)."""
    slurm_python: str | None = None
    """MESHWRIGHT_SLURM_PYTHON: the workers' interpreter; this process's own where not given."""
    slurm_setup: str | None = None
    """MESHWRIGHT_SLURM_SETUP: shell lines before the worker, such as module load cuda."""
    slurm_master_addr: str | None = None
    """MESHWRIGHT_SLURM_MASTER_ADDR: where rank 0 listens, if not at the first node's name."""

    ssh_root: Path | None = None
    """MESHWRIGHT_SSH_ROOT: a folder that this machine and all hosts see under the same path."""
    ssh_hosts: tuple[tuple[str, int], ...] = ()
    """MESHWRIGHT_SSH_HOSTFILE: hosts and their slots, as in DeepSpeed's hostfile."""
    ssh_config: Path | None = None
    """MESHWRIGHT_SSH_CONFIG: ssh's configuration file; the user's own where not given."""
    ssh_python: str | None = None
    """MESHWRIGHT_SSH_PYTHON: the workers' interpreter; this process's own where not given."""
    ssh_setup: str | None = None
    """MESHWRIGHT_SSH_SETUP: shell lines before the worker, such as module load cuda."""
    ssh_master_addr: str | None = None
    """MESHWRIGHT_SSH_MASTER_ADDR: how the hosts call the first one, if not by its name."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Reads MESHWRIGHT_*; raises SettingsError that names the variable."""
        env = os.environ if environment is None else environment
        default = cls()
        return cls(
            host=env.get("MESHWRIGHT_HOST") or default.host,
            port=_number(env, "MESHWRIGHT_PORT", default.port, 0, 65_535),
            var=Path(env.get("MESHWRIGHT_VAR") or default.var),
            database_url=env.get("MESHWRIGHT_DATABASE_URL") or "",
            api_key=env.get("MESHWRIGHT_API_KEY") or None,
            max_body_bytes=_number(
                env, "MESHWRIGHT_MAX_BODY_BYTES", default.max_body_bytes, 1024, 2**31
            ),
            search_workers=_number(
                env, "MESHWRIGHT_SEARCH_WORKERS", default.search_workers, 1, 256
            ),
            lease_seconds=_seconds(env, "MESHWRIGHT_LEASE_SECONDS", default.lease_seconds),
            dry_run_workers=_number(
                env, "MESHWRIGHT_DRY_RUN_WORKERS", default.dry_run_workers, 1, 64
            ),
            executors=_executors(env),
            local_ranks=_number(env, "MESHWRIGHT_LOCAL_RANKS", default.local_ranks, 0, 1024),
            local_trials=_number(env, "MESHWRIGHT_LOCAL_TRIALS", default.local_trials, 1, 64),
            slurm_trials=_number(env, "MESHWRIGHT_SLURM_TRIALS", default.slurm_trials, 1, 1000),
            slurm_root=Path(root) if (root := env.get("MESHWRIGHT_SLURM_ROOT")) else None,
            slurm_nodes=_number(env, "MESHWRIGHT_SLURM_NODES", default.slurm_nodes, 0, 100_000),
            slurm_ranks_per_node=_number(
                env, "MESHWRIGHT_SLURM_RANKS_PER_NODE", default.slurm_ranks_per_node, 1, 1024
            ),
            slurm_partition=env.get("MESHWRIGHT_SLURM_PARTITION") or None,
            slurm_account=env.get("MESHWRIGHT_SLURM_ACCOUNT") or None,
            slurm_gres=env.get("MESHWRIGHT_SLURM_GRES") or None,
            slurm_image=env.get("MESHWRIGHT_SLURM_IMAGE") or None,
            slurm_python=env.get("MESHWRIGHT_SLURM_PYTHON") or None,
            slurm_setup=env.get("MESHWRIGHT_SLURM_SETUP") or None,
            slurm_master_addr=env.get("MESHWRIGHT_SLURM_MASTER_ADDR") or None,
            ssh_root=Path(root) if (root := env.get("MESHWRIGHT_SSH_ROOT")) else None,
            ssh_hosts=_hosts(env),
            ssh_config=Path(path) if (path := env.get("MESHWRIGHT_SSH_CONFIG")) else None,
            ssh_python=env.get("MESHWRIGHT_SSH_PYTHON") or None,
            ssh_setup=env.get("MESHWRIGHT_SSH_SETUP") or None,
            ssh_master_addr=env.get("MESHWRIGHT_SSH_MASTER_ADDR") or None,
        )

    @property
    def url(self) -> str:
        """The database's URL, with the driver that is installed."""
        if not self.database_url:
            return f"sqlite:///{(self.var / 'meshwright.db').resolve()}"
        for prefix in ("postgresql://", "postgres://"):
            if self.database_url.startswith(prefix):
                return "postgresql+psycopg://" + self.database_url.removeprefix(prefix)
        return self.database_url


EXECUTORS = ("local", "slurm", "ssh")

NEEDED = {
    "slurm": ("MESHWRIGHT_SLURM_ROOT", "MESHWRIGHT_SLURM_NODES"),
    "ssh": ("MESHWRIGHT_SSH_ROOT", "MESHWRIGHT_SSH_HOSTFILE"),
}
"""Variables without which an executor cannot be switched on."""


def _executors(env: Mapping[str, str]) -> tuple[str, ...]:
    text = env.get("MESHWRIGHT_EXECUTORS")
    if text is None:
        return Settings().executors
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in EXECUTORS:
            wanted = ", ".join(EXECUTORS)
            raise SettingsError(f"MESHWRIGHT_EXECUTORS names {name!r}; of {wanted} any would do")
    for name in names:
        for needed in NEEDED.get(name, ()):
            if not env.get(needed):
                raise SettingsError(f"MESHWRIGHT_EXECUTORS names {name}, which needs {needed}")
    return names


def _hosts(env: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """`node-1 slots=8` a line; comments begin with #. All hosts have as many slots."""
    name = "MESHWRIGHT_SSH_HOSTFILE"
    path = env.get(name)
    if not path:
        return ()
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise SettingsError(f"{name} is {path!r}, which cannot be read: {error}") from error
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    hosts = []
    for words in filter(None, lines):
        slots = words[1].removeprefix("slots=") if len(words) == 2 else ""
        if not slots.isdecimal() or int(slots) < 1:
            raise SettingsError(f"{name} has the line {' '.join(words)!r}; host slots=8 would do")
        hosts.append((words[0], int(slots)))
    if not hosts or len({slots for _, slots in hosts}) > 1:
        raise SettingsError(f"{name} must name hosts, all of them with as many slots")
    return tuple(hosts)


def _number(env: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = env.get(name)
    if not text:
        return default
    if not text.isdecimal() or not low <= int(text) <= high:
        raise SettingsError(f"{name} is {text!r}; a whole number from {low} to {high} would do")
    return int(text)


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 86_400:
        raise SettingsError(f"{name} is {text!r}; seconds above 0 would do")
    return value
