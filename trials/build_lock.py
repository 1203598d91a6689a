"""Compiled operators of the engine, built by one worker at a time, whoever was killed before.

PyTorch guards the folder of an extension by a file that is there while it is built
(torch/utils/file_baton.py). A worker that is killed leaves the file, and every later one waits for
it for ever. Workers here hold a lock of the kernel's beside it, which ends with its process, and
take the file away where its maker is gone.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

OWN_LOCK = "meshwright.lock"
"""Locked by the worker that builds; names its machine, which stays there where it is killed."""

QUIET_S = 900.0
"""So long nothing may change in a folder whose builder is unknown, perhaps on another node: one
file of the engine's operators compiles in a minute or two."""


@contextmanager
def alone_in(build: Path) -> Iterator[None]:
    """The block is the only one of all workers on this machine that builds in the folder."""
    build.mkdir(parents=True, exist_ok=True)
    with (build / OWN_LOCK).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        drop_if_left(build, file.read())
        _write(file, _here())
        yield
        _write(file, "")


def _write(file: Any, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def _here() -> str:
    """This machine: its boot, which containers share, and its name, which outlives a boot."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with suppress(OSError):
        return f"{boot.read_text('utf-8').strip()} {socket.gethostname()}"
    return socket.gethostname()


def drop_if_left(build: Path, builder: str) -> bool:
    """Takes PyTorch's lock out of the folder where whoever made it is gone; whether it did.

    To be called by the holder of OWN_LOCK. builder: machine of the last worker that was not done,
    empty where all were.
    """
    lock = build / "lock"
    if not lock.exists() or not _gone(build, lock, builder):
        return False
    lock.unlink(missing_ok=True)
    return True


def _gone(build: Path, lock: Path, builder: str) -> bool:
    if set(builder.split()) & set(_here().split()):
        return True  # a worker of this machine that lived would hold OWN_LOCK still
    if _is_open(lock):
        return False
    # Its maker is no worker of this machine: one of another node, or a program of the user's own.
    return time.time() - _last_change(build) > QUIET_S


def _is_open(path: Path) -> bool:
    """Whether a process of this machine that this one may look into holds the file open."""
    wanted = str(path.resolve())
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(link) == wanted:
                return True
    return False


def _last_change(build: Path) -> float:
    times = [0.0]
    for path in build.rglob("*"):
        if path.name != OWN_LOCK and not path.is_dir():
            with suppress(OSError):
                times.append(path.stat().st_mtime)
    return max(times)


def guard_builds() -> None:
    """From now on this process builds the engine's operators under the lock."""
    from deepspeed.ops.op_builder.builder import OpBuilder

    original = OpBuilder.jit_load
    if getattr(original, "guarded", False):
        return

    def jit_load(self: Any, verbose: bool = True) -> Any:
        from torch.utils import cpp_extension

        folder = cpp_extension._get_build_directory(self.name, verbose)
        with alone_in(Path(folder)):
            return original(self, verbose)

    jit_load.guarded = True  # type: ignore[attr-defined]
    OpBuilder.jit_load = jit_load
