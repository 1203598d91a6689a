"""How wide the intervals must be: from what held-out rows missed by."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_model.calibration.coefficients import Spread
from cost_model.plans import Floats
from cost_model.prediction import TRANSFERS
from tests.benchmarks.ask import Answers
from tests.benchmarks.rows import Row

Z90 = 1.6449
"""Standard normal quantile of 95 %."""
COVERED = 0.92
"""Share of the rows held out by model that their intervals shall cover: of rows held out by
cluster size, 2 or 3 % fewer are covered, so that both are near 90 %."""
FEWEST = 12
"""Rows from which a width of their own is taken."""
FEWEST_OF_ALL = 40
"""Rows from which all three figures of a spread are."""
LEAST = 0.02
"""No step time is repeated more closely."""

_KNOWN = np.geomspace(LEAST, 0.5, 14)
_SMALL = np.r_[0.01, np.geomspace(0.03, 0.5, 8)]
_TRANSFERS = np.r_[0.01, np.geomspace(0.05, 1.0, 9)]


@dataclass(frozen=True)
class Shares:
    """What share of the predicted step the host and exposed transfers make up; [rows] each."""

    host: Floats
    transfers: Floats

    @classmethod
    def of(cls, answers: Answers) -> "Shares":
        """Of the rows that were asked."""
        total = answers.seconds
        moved = np.sum([answers.parts[name] for name in TRANSFERS], axis=0)
        return cls(answers.parts["overhead"] / total, moved / total)

    def at(self, rows: Sequence[int] | np.ndarray) -> "Shares":
        """Of some of the rows."""
        return Shares(self.host[rows], self.transfers[rows])


Three = tuple[float, float, float]
"""known, small, transfers: the fields of Spread."""


def time_spreads(
    rows: Sequence[Row], log_ratios: Floats, shares: Shares
) -> dict[str, dict[str, float]]:
    """By software, software and architecture, and 'default': the fields of Spread.

    log_ratios: of held-out predictions [rows]. The three figures are those under which the errors
    are likeliest, were they distributed after Laplace; then all are scaled until the interval
    covers what it shall. Where rows are few, the figures of all rows are scaled.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        name = row.plan.software.name.lower()
        for key in (name, f"{name}/{row.cluster.node.gpu.generation}"):
            members[key].append(i)
    every = _likeliest(log_ratios, shares)
    found = {"default": _scaled(every, log_ratios, shares)}
    for name, places in members.items():
        errors, own = log_ratios[places], shares.at(places)
        if len(places) >= FEWEST_OF_ALL:
            found[name] = _scaled(_likeliest(errors, own), errors, own)
        elif len(places) >= FEWEST and "/" in name:
            found[name] = _scaled(every, errors, own)
    return {name: _fields(three) for name, three in found.items()}


def sigmas(three: Three, shares: Shares) -> Floats:
    """Log-normal standard deviations [rows], as the cost model states them."""
    known, small, transfers = three
    found: Floats = np.sqrt(
        known**2 + (small * shares.host) ** 2 + (transfers * shares.transfers) ** 2
    )
    return found


def stated_sigmas(
    rows: Sequence[Row], shares: Shares, spreads: dict[str, dict[str, float]]
) -> Floats:
    """What a table of spreads says of each row, as Coefficients.spread_of looks it up."""
    out = np.zeros(len(rows))
    for i, row in enumerate(rows):
        name = row.plan.software.name.lower()
        exact = f"{name}/{row.cluster.node.gpu.generation}"
        own = Spread(**(spreads.get(exact) or spreads.get(name) or spreads["default"]))
        out[i] = sigmas((own.known, own.small, own.transfers), shares.at([i]))[0]
    return out


def _fields(three: Three) -> dict[str, float]:
    known, small, transfers = (max(0.01, round(v, 3)) for v in three)
    return {
        "known": max(LEAST, known),
        "unknown_gpu": round(1.6 * known, 3),
        "small": small,
        "transfers": transfers,
    }


def _likeliest(errors: Floats, shares: Shares) -> Three:
    """Over a grid: three figures of two digits need no optimiser."""
    grid = itertools.product(_KNOWN, _SMALL, _TRANSFERS)
    scale = math.log(10) / Z90  # the 90 % quantile of Laplace's distribution, in normal sigmas

    def cost(three: Three) -> float:
        sigma = sigmas(three, shares)
        return float((np.abs(errors) * scale / sigma + np.log(sigma)).mean())

    return min(((float(a), float(b), float(c)) for a, b, c in grid), key=cost)


def _scaled(three: Three, errors: Floats, shares: Shares) -> Three:
    factor = float(np.quantile(np.abs(errors) / sigmas(three, shares), COVERED)) / Z90
    known, small, transfers = (factor * v for v in three)
    return known, small, transfers


def memory_spread(log_ratios: Floats) -> float:
    """Sigma within 1.645 of which 90 % of the rows fall."""
    return max(LEAST, float(np.quantile(np.abs(log_ratios), 0.9)) / Z90)


def coverage(log_ratios: Floats, sigma: float) -> float:
    """Share of rows within the 90 % interval of a sigma."""
    return float((np.abs(log_ratios) <= Z90 * sigma).mean()) if len(log_ratios) else math.nan
