"""Settings come from the environment and say what is wrong with it."""

from pathlib import Path

import pytest

from api.executors import Executors
from api.settings import Settings, SettingsError
from api.store import create_engine
from planner.errors import RequestError
from tests.trials.conftest import make_trial
from trials.executors.slurm import SlurmExecutor
from trials.executors.ssh import SshExecutor


def test_without_an_environment_the_database_is_a_file_under_var() -> None:
    settings = Settings.from_environment({})
    assert (settings.host, settings.port) == ("127.0.0.1", 8321)
    assert settings.url == f"sqlite:///{Path('var/meshwright.db').resolve()}"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_way_to_write_postgresql_takes_the_installed_driver(scheme: str) -> None:
    url = Settings(database_url=f"{scheme}://me@host/db").url
    assert url == "postgresql+psycopg://me@host/db"


@pytest.mark.parametrize(
    "environment",
    [
        {"MESHWRIGHT_PORT": "70000"},
        {"MESHWRIGHT_PORT": "http"},
        {"MESHWRIGHT_SEARCH_WORKERS": "0"},
        {"MESHWRIGHT_LEASE_SECONDS": "soon"},
        {"MESHWRIGHT_EXECUTORS": "local,pbs"},
        {"MESHWRIGHT_SLURM_NODES": "-1"},
        {"MESHWRIGHT_LOCAL_TRIALS": "0"},
    ],
)
def test_a_bad_value_names_its_variable(environment: dict[str, str]) -> None:
    name = next(iter(environment))
    with pytest.raises(SettingsError, match=name):
        Settings.from_environment(environment)


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "sqlite:///:memory:", "nonsense"])
def test_a_database_that_cannot_keep_jobs_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="MESHWRIGHT_DATABASE_URL"):
        create_engine(url)


def test_slurm_wants_its_folder_and_its_nodes() -> None:
    environment = {"MESHWRIGHT_EXECUTORS": "local, slurm"}
    with pytest.raises(SettingsError, match="MESHWRIGHT_SLURM_ROOT"):
        Settings.from_environment(environment)
    environment["MESHWRIGHT_SLURM_ROOT"] = "/shared"
    with pytest.raises(SettingsError, match="MESHWRIGHT_SLURM_NODES"):
        Settings.from_environment(environment)
    environment["MESHWRIGHT_SLURM_NODES"] = "4"
    assert Settings.from_environment(environment).executors == ("local", "slurm")


def test_the_settings_decide_how_slurm_is_asked(tmp_path: Path) -> None:
    settings = Settings.from_environment(
        {
            "MESHWRIGHT_EXECUTORS": "slurm",
            "MESHWRIGHT_SLURM_ROOT": str(tmp_path),
            "MESHWRIGHT_SLURM_NODES": "4",
            "MESHWRIGHT_SLURM_PARTITION": "a100",
            "MESHWRIGHT_SLURM_ACCOUNT": "me",
            "MESHWRIGHT_SLURM_IMAGE": "site/train:1",
            "MESHWRIGHT_SLURM_GRES": "gpu:{ranks}",
            "MESHWRIGHT_SLURM_SETUP": "module load cuda\nulimit -l unlimited",
        }
    )
    executor = Executors(settings).get("slurm")
    assert isinstance(executor, SlurmExecutor)
    assert executor.ranks == 32
    script = executor.script(make_trial("one", dp=2), tmp_path / "one").splitlines()
    for line in ("--partition=a100", "--account=me", "--gres=gpu:2", "--ntasks-per-node=2"):
        assert f"#SBATCH {line}" in script
    assert script.index("module load cuda") < script.index("ulimit -l unlimited")
    assert any("--container-image=site/train:1" in line for line in script)


def test_a_hostfile_says_which_hosts_ssh_reaches(tmp_path: Path) -> None:
    hostfile = tmp_path / "hostfile"
    environment = {"MESHWRIGHT_EXECUTORS": "ssh", "MESHWRIGHT_SSH_ROOT": str(tmp_path / "shared")}
    with pytest.raises(SettingsError, match="MESHWRIGHT_SSH_HOSTFILE"):
        Settings.from_environment(environment)
    environment["MESHWRIGHT_SSH_HOSTFILE"] = str(hostfile)
    for text in (None, "", "node-1", "node-1 slots=0", "node-1 slots=8\nnode-2 slots=4"):
        if text is not None:
            hostfile.write_text(text)
        with pytest.raises(SettingsError, match="MESHWRIGHT_SSH_HOSTFILE"):
            Settings.from_environment(environment)
    hostfile.write_text("# A100\nme@node-1 slots=8\n\nnode-2 slots=8  # the other\n")
    executors = Executors(Settings.from_environment(environment))
    executor = executors.get("ssh")
    assert isinstance(executor, SshExecutor)
    assert executor.settings.hosts == ("me@node-1", "node-2")
    assert executor.ranks == 16
    assert executors.at_a_time("ssh") == 1


def test_an_executor_that_is_not_switched_on_is_refused() -> None:
    with pytest.raises(RequestError, match="none is switched on"):
        Executors(Settings(executors=())).get("local")
