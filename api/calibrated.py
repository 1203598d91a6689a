"""What trials have taught about a cluster, for searches and predictions on it.

Without the web and job frameworks, since search processes use it too.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from cost_model.calibration import Coefficients
from cost_model.calibration.cluster import FACTORS, ClusterCalibration, cluster_key
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
