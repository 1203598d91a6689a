"""One node's part of a trial whose nodes share a folder and nothing else: no scheduler runs it.

Each node starts its ranks and watches them; what the others must know is a file in the trial's
folder: a rank has failed, somebody cancelled, a rank has ended. The first node collects.
"""

import os
import sys
import threading
import time
from pathlib import Path

from cost_model.specs.frozen import Frozen
from trials.executors.collect import collect
from trials.executors.supervise import (
    GRACE_S,
    News,
    end_group,
    end_ranks,
    free_port,
    start_cold,
    wait_for_ranks,
)
from trials.outcome import ENDED_HERE, Outcome
from trials.trial_file import read_trial_file, write_atomically

LOOK_S = 0.2
"""Between two looks at the other nodes' files: the folder may be on a slow file system."""

BEAT_S = 2.0
"""Between two signs of life."""

PORT_S = 120.0
"""How long a node waits for the first one to say where rank 0 listens."""

OTHERS_S = 30.0
"""How long the first node waits for the others' last words once its own ranks have ended."""


class Layout(Frozen):
    """How a trial lies on its nodes."""

    nodes: int
    per_node: int
    master_addr: str
    """Where rank 0 listens, as the other nodes call it."""


CANCEL, FAILED = "cancel", "failed"
"""Files that say: end it; a rank has failed."""


def beat_path(folder: Path, node: int) -> Path:
    """Touched while a node's supervisor lives."""
    return folder / f"alive-{node}"


def pid_path(folder: Path, node: int) -> Path:
    """The supervisor's process id on its node; it leads the group of its ranks."""
    return folder / f"node-{node}.pid"


def _code_path(folder: Path, rank: int) -> Path:
    return folder / f"exit-{rank}"


def _ended_path(folder: Path, node: int) -> Path:
    return folder / f"ended-{node}.json"


def layout_path(folder: Path) -> Path:
    """Where the layout lies."""
    return folder / "layout.json"


def run_node(folder: Path, node: int) -> None:
    """Runs the ranks of one node to their end; once, however often it is started."""
    try:
        pid_path(folder, node).open("x").close()
    except FileExistsError:
        return
    pid_path(folder, node).write_text(str(os.getpid()), "utf-8")
    threading.Thread(target=_beat, args=(beat_path(folder, node),), daemon=True).start()
    began = time.monotonic()
    trial = read_trial_file(folder)
    layout = Layout.model_validate_json(layout_path(folder).read_text("utf-8"))
    ranks = range(node * layout.per_node, (node + 1) * layout.per_node)
    pids: dict[int, int] = {}
    codes: dict[int, int] = {}
    try:
        port = _agreed_port(folder, node)
        for rank in ranks:
            pids[rank] = start_cold(trial, folder, rank, _environment(layout, rank, port))
        ended_by = wait_for_ranks(trial, folder, pids, codes, began, _News(folder))
    except (OSError, TimeoutError) as error:
        ended_by = Outcome(kind="launch_failure", message=f"node {node}: {error}")
    end_ranks(pids, codes)
    end_group()
    if ended_by is not None:
        write_atomically(_ended_path(folder, node), ended_by.model_dump_json())
        (folder / FAILED).touch()
    for rank in ranks:
        write_atomically(_code_path(folder, rank), str(codes.get(rank, ENDED_HERE)))
    if node == 0:
        _conclude(folder, layout, time.monotonic() - began)


def _beat(path: Path) -> None:
    while True:
        path.touch()
        time.sleep(BEAT_S)


def _agreed_port(folder: Path, node: int) -> int:
    path = folder / "port"
    if node == 0:
        write_atomically(path, str(free_port()))
    until = time.monotonic() + PORT_S
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError("the first node did not say where rank 0 listens")
        time.sleep(LOOK_S)
    return int(path.read_text("utf-8"))


def _environment(layout: Layout, rank: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % layout.per_node),
        "WORLD_SIZE": str(layout.nodes * layout.per_node),
        "LOCAL_WORLD_SIZE": str(layout.per_node),
        "LOCAL_SIZE": str(layout.per_node),
        "MASTER_ADDR": layout.master_addr,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


class _News(News):
    """What the other nodes and whoever cancels say through the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looked = 0.0
        self.last: Outcome | bool = False

    def failed(self) -> None:
        (self.folder / FAILED).touch()

    def heard(self) -> Outcome | bool:
        now = time.monotonic()
        if now - self.looked >= LOOK_S:
            self.looked = now
            if (self.folder / CANCEL).exists():
                self.last = Outcome(kind="cancelled", message="cancelled on request")
            else:
                self.last = (self.folder / FAILED).exists()
        return self.last


def _conclude(folder: Path, layout: Layout, wall_seconds: float) -> None:
    """The first node's last act: the result of all ranks."""
    trial = read_trial_file(folder)
    world = range(layout.nodes * layout.per_node)
    until = time.monotonic() + GRACE_S + OTHERS_S
    while time.monotonic() < until and not all(_code_path(folder, r).exists() for r in world):
        time.sleep(LOOK_S)
    codes = {}
    for rank in world:
        path = _code_path(folder, rank)
        codes[rank] = int(path.read_text("utf-8")) if path.exists() else ENDED_HERE
    ended = [_ended_path(folder, node) for node in range(layout.nodes)]
    told = [Outcome.model_validate_json(p.read_text("utf-8")) for p in ended if p.exists()]
    collect(folder, trial, codes, wall_seconds=wall_seconds, ended_by=told[0] if told else None)


if __name__ == "__main__":
    run_node(Path(sys.argv[1]), int(sys.argv[2]))
