"""How wide the intervals must be: from what held-out rows missed by."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from cost_model.plans import Floats
from tests.benchmarks.rows import Row

Z90 = 1.6449
"""Standard normal quantile of 95 %."""
FEWEST = 12
"""Rows from which a spread of their own is taken."""
FEWEST_OF_SOFTWARE = 40
"""The same for a software over all its GPUs, among which some were never measured."""


def time_spreads(
    rows: Sequence[Row], log_ratios: Floats, host_share: Floats
) -> dict[str, dict[str, float]]:
    """By software, software and architecture, and 'default': the fields of Spread.

    log_ratios: of held-out predictions [rows]. host_share: of the predicted step that the host
    sets the pace [rows]. `known` is chosen so that 90 % of the rows whose step is set by the GPU
    fall within 1.645 of it, `small` so that 90 % of the others do once it is added in quadrature.
    """
    by_software: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        name = row.plan.software.name.lower()
        for key in (name, f"{name}/{row.cluster.node.gpu.generation}", "default"):
            by_software[key].append(i)
    found = {}
    for name, places in by_software.items():
        fewest = FEWEST if "/" in name else FEWEST_OF_SOFTWARE
        if len(places) < fewest and name != "default":
            continue
        at = np.array(places)
        known, small = _two(np.abs(log_ratios[at]), host_share[at])
        found[name] = {
            "known": round(known, 3),
            "unknown_gpu": round(1.6 * known, 3),
            "small": max(0.01, round(small, 3)),
        }
    return found


def _two(errors: Floats, share: Floats) -> tuple[float, float]:
    """(sigma of rows that the GPU paces, sigma added per unit of the host's share)."""
    paced = share < 0.15
    known = float(np.quantile(errors[paced], 0.9)) / Z90 if paced.sum() >= FEWEST else 0.0
    if known == 0.0:
        known = float(np.quantile(errors, 0.9)) / Z90
    known = max(known, 0.02)
    rest = ~paced
    if rest.sum() < FEWEST:
        return known, 0.3
    excess = np.sqrt(np.maximum((errors[rest] / Z90) ** 2 - known**2, 0.0)) / share[rest]
    return known, float(np.quantile(excess, 0.9))


def memory_spread(log_ratios: Floats) -> float:
    """Sigma within 1.645 of which 90 % of the rows fall."""
    return max(0.02, float(np.quantile(np.abs(log_ratios), 0.9)) / Z90)


def coverage(log_ratios: Floats, sigma: float) -> float:
    """Share of rows within the 90 % interval of a sigma."""
    return float((np.abs(log_ratios) <= Z90 * sigma).mean()) if len(log_ratios) else math.nan
