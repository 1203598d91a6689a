"""Where real components are required, a test that needs one cannot be skipped in silence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.real
def test_marked():
    pytest.skip("no Slurm here")

def test_plain():
    pytest.skip("not now")
"""


@pytest.mark.parametrize(("required", "outcome"), [("1", "1 failed, 1 skipped"), ("", "2 skipped")])
def test_a_skip_is_a_failure_where_the_component_is_required(
    required: str, outcome: str, tmp_path: Path
) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  real: needs a component\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        env=os.environ | {"MESHWRIGHT_REQUIRE_REAL": required},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout, done.stdout
