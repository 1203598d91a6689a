"""What trials have taught about a cluster, for searches and predictions on it.

Without the web and job frameworks, since search processes use it too.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from cost_model.calibration import Coefficients
from cost_model.calibration.cluster import FACTORS, ClusterCalibration, cluster_key
from cost_model.calibration.pooling import pooled
from planner.request import Resolved

log = logging.getLogger(__name__)


def key_of(resolved: Resolved) -> str | None:
    """The kind of cluster; None for groups of different nodes, which have no one calibration."""
    return None if resolved.groups else cluster_key(resolved.cluster)


def read(stored: Mapping[str, Any] | None) -> ClusterCalibration | None:
    """A stored calibration; None where there is none, or one of a version that is no more."""
    if stored is None:
        return None
    try:
        found = ClusterCalibration.model_validate(stored)
    except ValidationError as error:
        log.warning("a stored calibration cannot be used any more: %s", error)
        return None
    return found if len(found.log_factors) == len(FACTORS) else None


def calibrated(resolved: Resolved, stored: Mapping[str, Any] | None) -> Resolved:
    """The request with the coefficients that trials on its cluster have calibrated."""
    found = read(stored)
    if found is None:
        return resolved
    return replace(
        resolved,
        coefficients=found.apply(Coefficients.default()),
        memory_coefficients=found.apply_memory(),
    )


@dataclass(frozen=True)
class Learned:
    """What one round of a campaign adds to what is kept of its kind of cluster."""

    known: Mapping[str, Any] | None
    """What was kept when the campaign began."""
    prior: ClusterCalibration
    """What it made of that."""
    before: ClusterCalibration
    """What it knew before the round."""
    after: ClusterCalibration
    """What it knows now."""

    def beside(self, kept: Mapping[str, Any] | None) -> ClusterCalibration:
        """What to keep now. kept: what is kept, perhaps with what other campaigns added meanwhile;
        the evidence of both is pooled then."""
        current = read(kept)
        alone = current is None or current == self.before
        if self.before.n_trials == self.prior.n_trials:
            alone = alone or current == read(self.known)
        if current is None or alone:
            return self.after
        return pooled(current, self.before, self.after)


def learned(
    known: Mapping[str, Any] | None, before: Mapping[str, Any] | None, state: Mapping[str, Any]
) -> Learned | None:
    """Of the states of a campaign before and after a round; None where it has learned nothing."""
    prior = ClusterCalibration.model_validate(state["prior"])
    after = ClusterCalibration.model_validate(state["calibration"])
    earlier = prior
    if before is not None:
        earlier = ClusterCalibration.model_validate(before["calibration"])
    if after.n_trials == earlier.n_trials:
        return None
    return Learned(known, prior, earlier, after)
