"""The public cases: the right class of finding, and the right mend.

The cases themselves are not part of the project: MESHWRIGHT_CASES names their folder.
"""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from planner.check import check
from tests.check import installed

HERE = Path(__file__).parent
CASES = Path(os.environ.get("MESHWRIGHT_CASES", HERE.parents[1] / ".." / "shared" / "cases"))
WANTED = tomllib.loads((HERE / "expected_cases.toml").read_text("utf-8"))

pytestmark = pytest.mark.skipif(not (CASES / "cases.json").exists(), reason="no cases here")


def _cases() -> dict[str, dict[str, Any]]:
    rows = json.loads((CASES / "cases.json").read_text("utf-8"))
    return {r["id"]: r for r in rows if r["kind"] == "validator"}


def _missed(name: str, case: dict[str, Any]) -> list[str]:
    wanted = WANTED[name]
    report = check(json.dumps(case["config"]), software=wanted.get("software"))
    codes = {f.code for f in report.findings}
    told = json.dumps(report.fixed) + " ".join(f"{f.reason} {f.mend}" for f in report.findings)
    return [c for c in wanted["codes"] if c not in codes] + [
        m for m in wanted["mend"] if m not in told
    ]


def test_at_least_95_percent_of_the_validator_cases_are_found_and_mended() -> None:
    cases = _cases()
    assert set(cases) == set(WANTED)
    missed = {name: gone for name, case in cases.items() if (gone := _missed(name, case))}
    assert len(missed) <= 0.05 * len(cases), missed


def _files() -> list[Path]:
    return sorted((CASES / "ds_configs").iterdir()) if CASES.exists() else []


@pytest.mark.parametrize("world", [1, 2, 8])
def test_every_real_file_is_refused_exactly_where_deepspeed_refuses_it(world: int) -> None:
    wrong = []
    for file in _files():
        text = file.read_text("utf-8")
        theirs = installed.refusal_of_text(text, world)
        ours = check(text, world_size=world, software="deepspeed")
        if ours.engine_accepts != (theirs is None):
            wrong.append((file.name, theirs))
        if not ours.engine_accepts:
            assert ours.has_error, file.name
    assert not wrong


def test_the_mended_file_is_accepted_by_deepspeed() -> None:
    for file in _files():
        report = check(file.read_text("utf-8"), world_size=8, software="deepspeed")
        if any(f.code == "template-placeholder" for f in report.findings):
            continue
        assert installed.refusal(report.fixed, 8) is None, file.name


def test_configs_for_hf_trainer_have_no_error_there_but_what_the_version_removed() -> None:
    official = ("LLaMA-Factory__", "axolotl__", "bigscience__")
    for file in _files():
        if not file.name.startswith(official):
            continue
        report = check(file.read_text("utf-8"), world_size=8, software="hf_trainer")
        errors = {f.code for f in report.findings if f.severity == "error"}
        wanted = {"no-effect-key"} if "torch_compile" in file.name else set()
        assert errors == wanted, (file.name, errors)
