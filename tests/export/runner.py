"""Runs exported examples on the CPU: each in a folder, its ranks forked from one warm process.

    python -m tests.export.runner ROOT

ROOT/<name>/ranks holds the number of ranks; rank r's output goes to ROOT/<name>/rank-<r>.log and
its exit status to ROOT/<name>/rank-<r>.status. What is changed here is the machine, not the
export: no shared-memory operator and PyTorch's own Adam, which need no compiler.
"""

import os
import runpy
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 90


def _prepare() -> None:
    """Imports everything once, and takes the machine's ways out."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import deepspeed
    import deepspeed.ops
    import deepspeed.runtime.config as runtime
    import deepspeed.runtime.zero.muon.muon_optimizer
    import torch
    import torch._dynamo

    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    plain = runtime.get_optimizer_params

    def with_torch_adam(document: dict[str, Any]) -> Any:
        params = plain(document)
        return params if params is None else params | {"torch_adam": True}

    runtime.get_optimizer_params = with_torch_adam


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _rank(folder: Path, rank: int, world: int, port: int) -> None:
    """One rank, in its own process; never returns."""
    log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_SIZE": world}
    numbers |= {"LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({k: str(v) for k, v in numbers.items()} | {"MASTER_ADDR": "127.0.0.1"})
    status = 1
    try:
        sys.argv = ["train.py", "--steps", "2"]
        runpy.run_path(str(folder / "train.py"), run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    (folder / f"rank-{rank}.status").write_text(str(status))
    os._exit(status)


def _run(folder: Path) -> None:
    world, port = int((folder / "ranks").read_text()), _port()
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            _rank(folder, rank, world, port)
        children.append(child)
    until = time.monotonic() + LIMIT_SECONDS
    while children and time.monotonic() < until:
        children = [c for c in children if os.waitpid(c, os.WNOHANG) == (0, 0)]
        time.sleep(0.05)
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)


def main() -> None:
    """Every folder of ROOT, one after another."""
    _prepare()
    for folder in sorted(p.parent for p in Path(sys.argv[1]).glob("*/ranks")):
        _run(folder)


if __name__ == "__main__":
    main()
