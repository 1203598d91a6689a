"""A worker that is killed while it compiles keeps no later one waiting."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trials.build_lock import OWN_LOCK, QUIET_S, alone_in

BUILD = """
import sys
from pathlib import Path
from torch.utils import cpp_extension
from trials.build_lock import alone_in

with alone_in(Path(sys.argv[1])):
    cpp_extension.load(
        "answer", [sys.argv[2]], build_directory=sys.argv[1], is_python_module=False
    )
print("built")
"""
"""What a worker does for an operator of the engine, with a source that compiles in a blink."""


def _left(build: Path, quiet_s: float) -> Path:
    """A lock of PyTorch's in a folder in which nothing has changed for some time."""
    build.mkdir(exist_ok=True)
    lock = build / "lock"
    lock.touch()
    then = time.time() - quiet_s
    for path in (lock, build):
        os.utime(path, (then, then))
    return lock


def test_the_lock_of_a_builder_that_nobody_knows_is_dropped_once_all_is_quiet(
    tmp_path: Path,
) -> None:
    lock = _left(tmp_path / "old", QUIET_S + 60)
    with alone_in(lock.parent):
        assert not lock.exists()


def test_the_lock_of_another_program_that_builds_is_left_to_it(tmp_path: Path) -> None:
    fresh = _left(tmp_path / "fresh", 0)
    with alone_in(fresh.parent):
        assert fresh.exists()
    quiet = _left(tmp_path / "quiet", QUIET_S + 60)
    with quiet.open(), alone_in(quiet.parent):
        assert quiet.exists()


def test_a_builder_of_another_machine_is_waited_for(tmp_path: Path) -> None:
    lock = _left(tmp_path / "shared", 0)
    (lock.parent / OWN_LOCK).write_text("6a1f-other-boot other-host")
    with alone_in(lock.parent):
        assert lock.exists()


@pytest.mark.slow
def test_a_killed_build_is_taken_up_by_the_next_worker(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    build, source = tmp_path / "build", tmp_path / "answer.cpp"
    pipe = tmp_path / "never.h"
    os.mkfifo(pipe)
    source.write_text('#include "never.h"\nextern "C" int answer() { return 42; }\n')
    command = [sys.executable, "-c", BUILD, str(build), str(source)]
    first = subprocess.Popen(command, start_new_session=True)
    until = time.monotonic() + 60
    while not (build / "build.ninja").exists() and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert (build / "lock").exists(), "PyTorch leaves its lock where its holder is killed"
    # The compiler is in a group of its own, which ninja makes, and waits for the pipe still.
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
    pipe.unlink()
    pipe.write_text("")
    second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 0, second.stderr
    assert "built" in second.stdout
    assert not (build / "lock").exists()
    assert (build / OWN_LOCK).read_text() == ""
