"""Each exported example trains, on the CPU, with the exported config."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from planner.export.example import example
from planner.export.plain import plain
from planner.export.result import NotExportable
from tests.export.plans import planned

pytest.importorskip("deepspeed")
pytest.importorskip("transformers")

RUN = [
    *("zero2-recompute", "zero3", "zero3-mlp", "autotp", "ulysses"),
    *("pipeline", "pipeline-uneven", "pipeline-placed", "experts", "fsdp"),
]


def _write(folder: Path, name: str) -> None:
    one = planned(name)
    files = dict(example(one).files)
    try:
        files |= plain(one).files
    except NotExportable:
        assert name == "fsdp"
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        assert isinstance(content, str)
        target.write_text(content, "utf-8")
    (folder / "ranks").write_text(str(one.plan.world_size))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("examples")
    for name in RUN:
        _write(root / name, name)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    subprocess.run(
        [sys.executable, "-m", "tests.export.runner", str(root)],
        env=environment,
        check=True,
        timeout=900,
        capture_output=True,
    )
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_the_exported_example_trains_under_the_plan(name: str, ran: Path) -> None:
    folder = ran / name
    world = int((folder / "ranks").read_text())
    logs = [(folder / f"rank-{r}.log").read_text("utf-8") for r in range(world)]
    statuses = [folder / f"rank-{r}.status" for r in range(world)]
    ended = [s.read_text() if s.exists() else "killed" for s in statuses]
    assert ended == ["0"] * world, "\n".join(log[-3000:] for log in logs)
    losses = [float(x) for x in re.findall(r"step \d+ loss ([\d.]+)", logs[0])]
    assert len(losses) == 2
    assert all(4.0 < loss < 8.0 for loss in losses)  # ln 256 is 5.5: random tokens
