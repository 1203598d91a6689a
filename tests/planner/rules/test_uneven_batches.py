"""Why no plan gives a faster group more sequences: what the real engine makes of it."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def _ask(*words: str) -> list[Any]:
    command = [sys.executable, "-m", "tests.planner.rules.uneven_batches", *words]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    return list(json.loads(out.strip().splitlines()[-1]))


def test_unequal_micro_batches_are_refused_where_the_total_is_given() -> None:
    assert all("train_batch_size is not equal" in str(answer) for answer in _ask("4"))


def test_without_a_total_the_means_of_the_ranks_are_averaged() -> None:
    """(1 + 5) / 2 instead of (3 x 1 + 5) / 4: a sequence of the larger batch counts for less."""
    assert _ask() == pytest.approx([3.0, 3.0])
