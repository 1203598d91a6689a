"""A real Slurm accepts the exported job script."""

import subprocess
from pathlib import Path

import pytest

from planner.export.environment import environment
from planner.export.launch import launch
from planner.export.options import ExportOptions
from tests.export import slurm
from tests.export.plans import planned

pytestmark = pytest.mark.skipif(not slurm.available(), reason="Slurm is not installed here")


def test_sbatch_would_schedule_the_script_on_the_plans_nodes(tmp_path: Path) -> None:
    options = ExportOptions(partition="gpu", job_name="plan-1", model_path="/data/my models")
    one = planned("two-nodes", options)
    work = tmp_path / "work"
    work.mkdir()
    for exported in (launch(one), environment(one)):
        for name, content in exported.files.items():
            assert isinstance(content, str)
            (work / name).write_text(content)
    home = tmp_path / "slurm"
    home.mkdir()
    with slurm.cluster(home) as variables:
        tried = subprocess.run(
            ["sbatch", "--test-only", "job.sbatch"],
            cwd=work,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        refused = subprocess.run(
            ["sbatch", "--test-only", "--nodes=3", "job.sbatch"],
            cwd=work,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
    assert tried.returncode == 0, tried.stderr
    assert "node-[0-1] in partition gpu" in tried.stderr
    assert refused.returncode != 0
