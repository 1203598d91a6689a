"""What trials have taught about one kind of cluster: factors on the shipped coefficients.

A factor multiplies a physical figure (an efficiency, a latency, a host time) for every plan and
model alike. Each has a log-normal prior around 1, as wide as the shipped figures have proved to be
off on GPUs like these, so that few trials move only what they clearly show.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cost_model.calibration.coefficients import Coefficients, Spread
from cost_model.calibration.memory import MemoryCoefficients, default_memory_coefficients
from cost_model.plans import Floats, Software
from cost_model.specs.cluster import ClusterSpec
from cost_model.specs.frozen import Frozen

Some = TypeVar("Some", bound=Frozen)


@dataclass(frozen=True)
class Factor:
    """One thing that is calibrated."""

    places: tuple[tuple[str, str], ...]
    """(group of the coefficients, field) that it multiplies."""
    prior: float
    """Standard deviation of its logarithm, in units of the cluster's shipped spread."""
    least: float = 0.0
    """The same, at least: what varies from host to host and is in no data sheet."""


FACTORS: dict[str, Factor] = {
    "gemm": Factor(
        (
            ("gpu", "gemm_efficiency"),
            ("gpu", "gemm_issue_efficiency"),
            ("gpu", "fp32_efficiency"),
        ),
        1.0,
    ),
    "attention": Factor(
        (
            ("gpu", "flash1_efficiency"),
            ("gpu", "flash2_efficiency"),
            ("gpu", "vendor_flash_efficiency"),
        ),
        1.5,
    ),
    "memory": Factor((("gpu", "memory_efficiency"),), 1.0),
    "launch": Factor(
        (("gpu", "kernel_overhead_us"), ("gpu", "gemm_overhead_us"), ("software", "host_us")),
        1.0,
        0.5,
    ),
    "hooks": Factor((("software", "comm_host_us"), ("software", "zero3_host_us")), 1.0, 0.6),
    "link_bandwidth": Factor((("link", "efficiency"),), 1.5),
    "link_latency": Factor((("link", "base_us"), ("link", "hop_us")), 1.0, 0.6),
    "network_bandwidth": Factor((("network", "efficiency"),), 1.5, 0.3),
    "network_latency": Factor((("network", "base_us"), ("network", "hop_us")), 1.0, 0.6),
    "overlap": Factor((("software", "dp_overlap"),), 1.0, 0.4),
    "sharding": Factor((("software", "zero_traffic_ratio"),), 1.5),
    "update": Factor((("gpu", "update_slowdown"),), 1.5),
    "fixed": Factor((("software", "step_ms"), ("software", "micro_batch_ms")), 1.0, 0.8),
    "offload": Factor(
        (("host", "memory_efficiency"), ("host", "core_gb_per_s"), ("host", "pcie_efficiency")),
        1.0,
        0.3,
    ),
}
"""In the order of the columns of a covariance."""

ANY_PROCESSOR = 0.7
"""Spread of the one entry that stands for every processor: cores differ by a factor of two."""

OWN_SHARE = 0.5
"""Share of the shipped spread that is a plan's own and no factor explains."""

DRIFT = 0.05
"""What a factor may have moved between one campaign and the next: clocks, drivers, neighbours."""


class ClusterCalibration(Frozen):
    """Factors of one kind of cluster, how sure they are, and how far plans still scatter."""

    key: str
    """`cluster_key` of the clusters it holds for."""
    log_factors: tuple[float, ...]
    """Logarithms, in the order of FACTORS; 0 is the shipped figure."""
    covariance: tuple[tuple[float, ...], ...]
    """Of the logarithms."""
    residual: float
    """Log-normal standard deviation of one plan's step time around the calibrated prediction."""
    spread: float
    """The same with what the factors themselves are unsure of, for plans like those tried."""
    memory_fixed_gib: float = 0.0
    """Bytes on every rank beyond the shipped figures."""
    memory_fragmentation: float | None = None
    """Share of the allocated peak held beyond it; None is the shipped one."""
    memory_sigma: float | None = None
    """Standard deviation of the logarithm of measured over predicted bytes; None is the shipped."""
    n_trials: int = 0
    """Trials that it has learned from, failed ones included."""

    @property
    def factors(self) -> dict[str, float]:
        """Each factor by name."""
        return {n: math.exp(v) for n, v in zip(FACTORS, self.log_factors, strict=True)}

    @property
    def deviations(self) -> dict[str, float]:
        """Standard deviation of each factor's logarithm."""
        return {n: math.sqrt(self.covariance[i][i]) for i, n in enumerate(FACTORS)}

    def apply(self, coefficients: Coefficients) -> Coefficients:
        """The coefficients for this cluster: every figure times its factor, the spread narrowed."""
        return scaled(coefficients, np.array(self.log_factors), self.spread)

    def apply_memory(self, coefficients: MemoryCoefficients | None = None) -> MemoryCoefficients:
        """The memory coefficients for this cluster."""
        known = coefficients or default_memory_coefficients()
        update: dict[str, object] = {"context_gib": known.context_gib + self.memory_fixed_gib}
        if self.memory_fragmentation is not None:
            update["fragmentation"] = self.memory_fragmentation
        if self.memory_sigma is not None:
            update["spread"] = known.spread.model_copy(update={"sigma": self.memory_sigma})
        return known.model_copy(update=update)


def cluster_key(cluster: ClusterSpec) -> str:
    """Names what a calibration depends on, not how many nodes there are.

    The GPU and its data sheet, the links, the network, the host; the software stack is that of
    the pinned engine.
    """
    told = cluster.node.model_dump_json(exclude={"gpu": {"source", "usd_per_hour"}})
    told += cluster.network.model_dump_json()
    return f"{cluster.node.gpu.name}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def shipped_spread(cluster: ClusterSpec, coefficients: Coefficients) -> float:
    """Log-normal standard deviation of the shipped figures on such GPUs: the median software."""
    gpu = cluster.node.gpu
    sure = coefficients.knows(gpu)
    spreads = [coefficients.spread_of(s, gpu) for s in Software]
    middle = sorted(s.known if sure else s.unknown_gpu for s in spreads)[len(spreads) // 2]
    return max(middle, ANY_PROCESSOR) if gpu.generation == "cpu" else middle


def uncalibrated(
    cluster: ClusterSpec, coefficients: Coefficients | None = None
) -> ClusterCalibration:
    """What is known before any trial: factors of 1, as unsure as the shipped figures are."""
    known = coefficients or Coefficients.default()
    width = shipped_spread(cluster, known)
    own = OWN_SHARE * min(width, known.spread["default"].unknown_gpu)
    deviations = [max(f.prior * width, f.least) for f in FACTORS.values()]
    return ClusterCalibration(
        key=cluster_key(cluster),
        log_factors=(0.0,) * len(FACTORS),
        covariance=as_rows(np.diag(np.square(deviations))),
        residual=own,
        spread=width,
    )


def later(calibration: ClusterCalibration) -> ClusterCalibration:
    """The same as the prior of another campaign: a little less sure."""
    drift = DRIFT**2 * np.eye(len(FACTORS))
    return calibration.model_copy(
        update={"covariance": as_rows(np.array(calibration.covariance) + drift)}
    )


def as_rows(matrix: Floats) -> tuple[tuple[float, ...], ...]:
    """A matrix as JSON holds it."""
    return tuple(tuple(float(v) for v in row) for row in matrix)


def of_cluster(coefficients: Coefficients, cluster: ClusterSpec) -> Coefficients:
    """The coefficients without what no plan on this cluster reads: cheap to scale many times."""
    gpu, link = cluster.node.gpu, cluster.node.link.kind
    own = {gpu.name, gpu.generation}
    kinds = {link, "pcie", f"{link}/{gpu.name}", f"pcie/{gpu.name}"}

    def some(table: Mapping[str, Some], names: set[str]) -> dict[str, Some]:
        return {name: one for name, one in table.items() if name in names}

    return coefficients.model_copy(
        update={
            "gpus": some(coefficients.gpus, own),
            "architectures": some(coefficients.architectures, own),
            "links": some(coefficients.links, kinds),
            "networks": some(coefficients.networks, {cluster.network.kind}),
        }
    )


def scaled(
    coefficients: Coefficients, log_factors: Floats, spread: float | None = None
) -> Coefficients:
    """Coefficients with every figure times its factor. spread: None leaves the shipped one.

    An efficiency may pass one where the data sheet understates the hardware.
    """
    times = dict(zip(FACTORS, np.exp(log_factors), strict=True))
    per_group: dict[str, dict[str, float]] = {}
    for name, factor in FACTORS.items():
        for group, field in factor.places:
            per_group.setdefault(group, {})[field] = float(times[name])
    by_field = {group: fields.items() for group, fields in per_group.items()}

    def moved(group: str, one: Some) -> Some:
        new = {field: getattr(one, field) * factor for field, factor in by_field[group]}
        if "dp_overlap" in new:
            new["dp_overlap"] = min(new["dp_overlap"], 1.0)
        return one.model_copy(update=new)

    def all_of(group: str, table: Mapping[str, Some]) -> dict[str, Some]:
        return {name: moved(group, one) for name, one in table.items()}

    update: dict[str, object] = {
        "gpus": all_of("gpu", coefficients.gpus),
        "architectures": all_of("gpu", coefficients.architectures),
        "links": all_of("link", coefficients.links),
        "networks": all_of("network", coefficients.networks),
        "software": all_of("software", coefficients.software),
        "host": moved("host", coefficients.host),
    }
    if spread is not None:
        one = Spread(known=spread, unknown_gpu=spread, small=0.01)
        update["spread"] = {"default": one}
    return coefficients.model_copy(update=update)
