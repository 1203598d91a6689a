"""The cost model against figures that papers and documentation print: nothing from outside."""

from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.ask import Answers, ask
from tests.benchmarks.rows import Row, read_directory
from tests.benchmarks.rows.raw import read_csv
from tests.benchmarks.scores import Pairs, memory_pairs, time_pairs

HERE = Path(__file__).parent

MEAN_ERROR = 0.15
"""Mean absolute error of step time that the whole table may have."""
WORST_SOURCE = {
    "megatron_sc21": 0.08,
    "korthikanti": 0.12,
    "megascale": 0.08,
    "mt_nlg": 0.15,
    "nemotron4": 0.15,
    "fsdp_paper": 0.10,
}
"""Mean absolute error of step time that each of the larger tables may have. Those of reports.csv
(model reports and the FSDP paper) were typed after the fit and are in none of its rows."""


@cache
def _answered() -> tuple[list[Row], Answers]:
    rows = [row for row in read_directory(HERE) if isinstance(row, Row)]
    return rows, ask(rows)


def _times() -> tuple[list[Row], Pairs]:
    rows, answers = _answered()
    return rows, time_pairs(rows, answers)


def test_at_least_sixty_rows_and_each_names_its_source() -> None:
    raw = [row for path in sorted(HERE.glob("*.csv")) for row in read_csv(path)]
    assert len(raw) >= 95
    assert all(row.text("citation") for row in raw)


def test_every_published_row_can_be_asked() -> None:
    read = read_directory(HERE)
    assert all(isinstance(row, Row) for row in read), [r for r in read if not isinstance(r, Row)]


def test_step_time_is_right_on_average() -> None:
    _, pairs = _times()
    assert float(np.abs(pairs.errors).mean()) < MEAN_ERROR


@pytest.mark.parametrize(("source", "limit"), sorted(WORST_SOURCE.items()))
def test_step_time_is_right_for_each_paper(source: str, limit: float) -> None:
    rows, pairs = _times()
    of_source = np.array([rows[i].source == source for i in pairs.rows])
    assert float(np.abs(pairs.errors[of_source]).mean()) < limit


def test_peak_memory_is_right_on_average() -> None:
    rows, answers = _answered()
    pairs = memory_pairs(rows, answers)
    assert float(np.abs(pairs.errors).mean()) < 0.20


def test_runs_that_were_published_are_called_fitting() -> None:
    rows, answers = _answered()
    wrong = [r.row_id for r, fits in zip(rows, answers.fits, strict=True) if not fits]
    assert not {r.row_id for r in rows if not r.measured.oom} & set(wrong)


def test_weak_scaling_of_each_paper_keeps_its_order() -> None:
    rows, pairs = _times()
    by_paper: dict[str, list[int]] = defaultdict(list)
    for place, i in enumerate(pairs.rows):
        if rows[i].source in WORST_SOURCE:
            by_paper[rows[i].source].append(place)
    for source, places in by_paper.items():
        at = np.array(places)
        correlation = np.corrcoef(np.log(pairs.measured[at]), np.log(pairs.predicted[at]))[0, 1]
        assert correlation > 0.97, source
