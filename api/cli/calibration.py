"""The file in which the command line keeps what trials have taught about a cluster."""

import fcntl
import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from api.calibrated import Learned, calibrated, key_of
from cost_model.calibration.cluster import ClusterCalibration
from planner.errors import Problem, RequestError
from planner.request import Resolved
from trials.trial_file import write_atomically

CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        help="File in which `meshwright campaign` keeps what trials taught about this cluster.",
    ),
]


def read_calibration(path: Path, resolved: Resolved) -> ClusterCalibration:
    """The file's content; RequestError where it cannot be used for the request's cluster."""
    try:
        found = ClusterCalibration.model_validate_json(path.read_text("utf-8"))
    except (OSError, ValidationError) as error:
        wanted = "give a file that a campaign wrote"
        raise RequestError([Problem("--calibration", f"{path} cannot be read", wanted)]) from error
    key = key_of(resolved)
    if found.key != key:
        given = f"{path} is of {found.key}, and the request's cluster is {key}"
        raise RequestError([Problem("--calibration", given, "give the file of this cluster")])
    return found


def with_file(resolved: Resolved, path: Path | None) -> Resolved:
    """The request with the file's coefficients, and a word about it on the terminal."""
    if path is None:
        return resolved
    found = read_calibration(path, resolved)
    typer.echo(f"calibrated by {found.n_trials} trials on {found.key}", err=True)
    return calibrated(resolved, found.model_dump(mode="json"))


def keep_in_file(path: Path, learned: Learned) -> ClusterCalibration:
    """Writes what a campaign has learned; with what another one has written there meanwhile the
    evidence of both is pooled."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = json.loads(path.read_text("utf-8")) if path.exists() else None
        both = learned.beside(kept)
        write_atomically(path, both.model_dump_json(indent=2) + "\n")
    return both
