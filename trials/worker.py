"""One rank of one trial: reads the trial file, trains, writes its report.

`python -m trials.worker FOLDER` with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in
the environment (torchrun's names), or those of Slurm.
"""

import os
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from trials.build_lock import guard_builds
from trials.outcome import of_error
from trials.preflight import Refused, check
from trials.result import RankReport, rank_path
from trials.trial_file import TrialFile, read_trial_file, write_atomically

PHASE_WIDTH = 40
"""Characters of the file that says where a rank is."""


@dataclass
class Progress:
    """Where a rank is, for its report and for whoever finds it hanging."""

    folder: Path
    rank: int
    phase: str = "load"
    entered: int = 0
    startup: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def reached(self, name: str, phase: str) -> None:
        """A part of the start is done; the next phase begins."""
        now = time.perf_counter()
        self.startup[name] = now - self._since
        self._since = now
        self.enter(phase)

    def enter(self, phase: str) -> None:
        """Begins a phase; how many were begun tells which rank is behind."""
        self.phase = phase
        self.entered += 1
        path = self.folder / f"phase-{self.rank}"
        # In place and in one write: whoever reads meanwhile sees a phase, never an empty file.
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, f"{phase} {self.entered}".ljust(PHASE_WIDTH).encode(), 0)
        finally:
            os.close(file)


def read_trial(folder: Path) -> TrialFile:
    """The trial; raises Refused for a file of another version or one that cannot be read."""
    try:
        return read_trial_file(folder)
    except ValueError as error:
        raise Refused(f"trial file cannot be used: {error}") from error


def main(folder: Path, rank: int, world: int, local_rank: int) -> int:
    """Runs one rank; returns the exit code. The report is written in any case but a kill."""
    progress = Progress(folder, rank)
    try:
        trial = read_trial(folder)
        check(trial, ranks=world, libraries=True)
        report = _run(trial, progress, rank, world, local_rank)
    except Exception as error:
        traceback.print_exc()
        outcome = of_error(type(error).__name__, str(error), progress.phase, rank)
        report = RankReport(
            rank=rank,
            host=socket.gethostname(),
            device="",
            outcome=outcome,
            startup=progress.startup,
        )
    write_atomically(rank_path(folder, rank), report.model_dump_json())
    return 0 if report.outcome.kind in ("ok", "pruned") else 1


def prepare_imports() -> None:
    """Imports what every rank needs; in a parent that forks, once for all of them."""
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed.ops
    import deepspeed.pipe
    import deepspeed.runtime.zero.stage3
    import torch._dynamo

    # Else the first process group on a CPU compiles a shared-memory collective for a minute.
    deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
    guard_builds()
    # A check of every ZeRO optimizer imports Muon, whose decorator loads all of Inductor.
    original = torch.compile
    torch.compile = lambda f=None, **_: f or (lambda g: g)  # type: ignore[assignment]
    try:
        import deepspeed.runtime.zero.muon.original_muon
    finally:
        torch.compile = original


def _run(
    trial: TrialFile, progress: Progress, rank: int, world: int, local_rank: int
) -> RankReport:
    prepare_imports()
    import torch
    import torch.distributed as dist

    progress.reached("import", "init")
    device = _device(trial, local_rank)
    if device.type == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    limit = timedelta(seconds=trial.collective_timeout_s)
    _join(device, limit)
    progress.reached("process_group", "init")
    from trials.engines import build_trainer
    from trials.exposed import profiled
    from trials.loop import Loop
    from trials.measure import CollectiveClock, MemoryClock, sweep
    from trials.model.transformer import parameter_count
    from trials.probe import probe
    from trials.step_log import StepLog

    memory = MemoryClock(device)
    trainer = build_trainer(trial, rank, device)
    progress.reached("engine", "init")
    swept = sweep(trainer.mesh, device, trial.plan.ep) if trial.sweep_collectives else ()
    kernels = probe(trial, device) if trial.sweep_collectives else ()

    def entered(phase: str) -> None:
        memory.enter(phase)
        progress.enter(phase)

    trainer.on_phase = entered
    with CollectiveClock() as clock, StepLog(progress.folder, rank) as log:
        loop = Loop(trial, trainer, device, on_step=log.add)
        outcome = loop.run(clock)
    exposed = profiled(loop.one_more) if device.type == "cuda" and outcome.kind == "ok" else None
    report = RankReport(
        rank=rank,
        host=socket.gethostname(),
        device=_device_name(device),
        outcome=outcome,
        parameters=parameter_count(trainer.engine.module),
        warmup=tuple(loop.measured[: trial.warmup_steps]),
        steps=tuple(loop.measured[trial.warmup_steps :]),
        memory=memory.report(),
        collectives=swept,
        kernels=kernels,
        exposed=exposed,
        startup=progress.startup,
        notes=tuple(trainer.notes),
        adapted=loop.adaptation(),
    )
    dist.barrier()
    dist.destroy_process_group()
    return report


def _device(trial: TrialFile, local_rank: int) -> Any:
    import torch

    wanted = trial.device
    if wanted == "auto":
        wanted = "gpu" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise Refused(f"local rank {local_rank} has no GPU; {torch.cuda.device_count()} are there")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _join(device: Any, limit: timedelta) -> None:
    import deepspeed
    from torch.distributed import distributed_c10d

    backend = "nccl" if device.type == "cuda" else "gloo"
    # The engine makes its groups without a time limit, which would be PyTorch's 10 or 30 minutes.
    distributed_c10d._get_default_timeout = lambda backend: limit
    deepspeed.init_distributed(dist_backend=backend, timeout=limit, verbose=False)


def _device_name(device: Any) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def from_environment(folder: Path) -> int:
    """Runs the rank that the launcher's environment names."""
    env = os.environ
    for name, slurm in (
        ("RANK", "SLURM_PROCID"),
        ("WORLD_SIZE", "SLURM_NTASKS"),
        ("LOCAL_RANK", "SLURM_LOCALID"),
    ):
        env.setdefault(name, env.get(slurm, "0"))
    env.setdefault("LOCAL_SIZE", env.get("LOCAL_WORLD_SIZE", "1"))
    return main(folder, int(env["RANK"]), int(env["WORLD_SIZE"]), int(env["LOCAL_RANK"]))


if __name__ == "__main__":
    code = from_environment(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of process groups can keep an interpreter from ending
