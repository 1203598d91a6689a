"""The service is killed in the middle of a campaign on Slurm: it resumes, every trial runs once."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.samples import TINY
from tests.api.server import Server
from tests.trials.slurm_cluster import SlurmCluster, missing

pytestmark = [pytest.mark.slow, pytest.mark.real]

NODES = 4
AT_A_TIME = 2


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    lacking = missing()
    if lacking or os.geteuid() != 0:
        pytest.skip(f"Slurm is not installed here: {', '.join(lacking) or 'not root'}")
    folder = Path(f"/tmp/mw-campaign-{os.getpid()}")  # a socket's path must be short
    cluster = SlurmCluster(folder, nodes=NODES)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _jobs(cluster: SlurmCluster, campaign_id: str) -> list[str]:
    """Names of all jobs that Slurm has seen of a campaign; it forgets none within five minutes."""
    listed = subprocess.run(
        ["squeue", "--states=all", "--noheader", "--format=%j"],
        env={**os.environ, **cluster.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(n for n in listed.stdout.split() if n.startswith(campaign_id))


@pytest.mark.parametrize(("store", "max_trials"), [("sqlite", 8), ("postgresql", 4)])
def test_a_killed_service_resumes_its_campaign_and_every_trial_runs_once(
    slurm: SlurmCluster,
    store: str,
    max_trials: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    database_url = request.getfixturevalue(f"{store}_url")
    environment = {
        "MESHWRIGHT_DATABASE_URL": database_url,
        "MESHWRIGHT_VAR": str(tmp_path / "var"),
        "MESHWRIGHT_EXECUTORS": "slurm",
        "MESHWRIGHT_SLURM_ROOT": str(tmp_path / "shared"),
        "MESHWRIGHT_SLURM_NODES": str(NODES),
        "MESHWRIGHT_SLURM_RANKS_PER_NODE": "2",
        "MESHWRIGHT_SLURM_PARTITION": "gpu",
        "MESHWRIGHT_SLURM_MASTER_ADDR": "127.0.0.1",
        **slurm.environment,
    }
    asked: dict[str, Any] = {
        "executor": "slurm",
        "max_trials": max_trials,
        "parallel": AT_A_TIME,
        "steps": 2,
        "warmup_steps": 1,
        "confidence": 1.0,
        "prune_above": 1000.0,
    }
    with Server(tmp_path / "log", **environment) as server:
        plan = server.post(TINY)
        assert server.finished(plan)["status"] == "succeeded"
        answer = server.http.post(f"/v1/plans/{plan}/campaigns", json=asked)
        assert answer.status_code == 202, answer.text
        url = answer.json()["links"]["self"]
        campaign_id = answer.json()["id"]
        server.wait(lambda: server.http.get(url).json()["tried"] >= AT_A_TIME, 120)
        before = server.http.get(url).json()
        assert before["status"] == "running"
        assert any(t["outcome"] is None for t in before["trials"])
        server.kill()

    with Server(tmp_path / "log", **environment) as server:
        server.wait(lambda: server.http.get(url).json()["status"] != "running", 240)
        campaign = server.http.get(url).json()
        trials = server.http.get(f"{campaign['links']['trials']}&limit=200").json()["items"]
    assert campaign["status"] == "succeeded", campaign["error"]
    ids = [f"{campaign_id}-{n:03d}" for n in range(max_trials)]
    assert [t["trial_id"] for t in campaign["trials"]] == ids
    assert {t["outcome"] for t in campaign["trials"]} == {"ok"}
    assert sorted(t["id"] for t in trials) == ids
    assert {t["status"] for t in trials} == {"succeeded"}
    assert _jobs(slurm, campaign_id) == ids
    assert campaign["calibration"]["trials"] == max_trials
    told = {t["trial_id"]: t for t in campaign["trials"]}
    for trial in before["trials"]:
        if trial["outcome"] is not None:
            assert told[trial["trial_id"]] == trial
