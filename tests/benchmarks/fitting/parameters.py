"""Which coefficients of the step-time model are free, between what bounds, and what is expected.

A parameter is one physical figure; it may stand at several places of the file (the same GPU sold
with 40 and 80 GB). Expected values and their spread keep figures that the data hardly sees from
running away: where a GPU type or a link has no rows, its parameter stays where it is expected.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cost_model.calibration import Coefficients


@dataclass(frozen=True)
class Parameter:
    """One free figure."""

    places: tuple[tuple[str, str, str], ...]
    """(group, key, field) in the coefficients: ("gpus", "a100-80g-sxm", "gemm_efficiency")."""
    low: float
    high: float
    expected: float
    """What one would say before seeing any row."""
    spread: float
    """Standard deviation of the logarithm around the expectation."""

    @property
    def name(self) -> str:
        """Its first place."""
        return "/".join(self.places[0])


_GPU_CLASSES: tuple[tuple[str, str | None, float], ...] = (
    (r"a100|a800", "ampere", 0.80),
    (r"v100-\d+g-sxm2", "volta", 0.75),
    (r"v100-32g-sxm3", None, 0.80),
    (r"(h100|h800|h200|gh200)(?!.*500w)", "hopper", 0.73),
    (r"h100-96g-500w", None, 0.60),
    (r"b200", "blackwell", 0.70),
    (r"t4", "turing", 0.45),
    (r"a10g", None, 0.70),
    (r"l4$", None, 0.50),
)
"""GPU types that share their silicon and power limit, the architecture whose default they set, and
the share of the matrix peak that one would expect: nine tenths of the best products that public
tables show (Bekman, "ML Engineering", maximum achievable matmul FLOPS), less on cards of 70 W."""

Limits = tuple[str, float, float, float, float]
"""Field, lowest, highest, expected, spread of the logarithm."""

_GPU_FIELDS: tuple[Limits, ...] = (
    ("gemm_efficiency", 0.15, 0.98, 0.75, 0.15),
    ("gemm_issue_efficiency", 0.30, 1.0, 0.88, 0.08),
    ("memory_efficiency", 0.30, 0.95, 0.80, 0.10),
    ("flash1_efficiency", 0.10, 0.90, 0.36, 0.25),
    ("flash2_efficiency", 0.10, 0.95, 0.50, 0.25),
    ("vendor_flash_efficiency", 0.10, 0.95, 0.55, 0.25),
    ("flash_backward_ratio", 0.40, 1.20, 0.80, 0.15),
    ("kernel_overhead_us", 0.50, 12.0, 2.0, 0.50),
)
_LINK_FIELDS: tuple[Limits, ...] = (
    ("efficiency", 0.03, 0.98, 0.65, 0.25),
    ("base_us", 2.0, 120.0, 30.0, 0.50),
)
_LINKS: dict[str, float | None] = {
    "nvswitch": None,
    "nvlink": None,
    "nvlink/gh200-96g": None,
    "pcie/a10g": 0.055,
    "pcie/l4": 0.145,
    "pcie/t4": 0.25,
}
"""Links that rows cross, with the efficiency that public collective benchmarks show where it is
far from the usual: GPUs without peer copies. The others keep their figures."""
_NETWORKS = ("infiniband", "roce", "ethernet", "efa", "omnipath")
_NETWORK_FIELDS: tuple[Limits, ...] = (
    ("efficiency", 0.03, 0.98, 0.60, 0.35),
    ("hop_us", 0.2, 60.0, 4.0, 0.70),
)
_SOFTWARE_FIELDS: tuple[Limits, ...] = (
    ("host_us", 2.0, 120.0, 15.0, 0.60),
    ("host_backward_ratio", 0.2, 3.0, 0.9, 0.30),
    ("comm_host_us", 1.0, 400.0, 40.0, 0.60),
    ("zero3_host_us", 5.0, 1500.0, 150.0, 0.60),
    ("micro_batch_ms", 0.05, 30.0, 1.5, 0.80),
    ("step_ms", 0.5, 200.0, 6.0, 0.80),
    ("dp_overlap", 0.05, 1.0, 0.7, 0.40),
)
_SHARDING: Limits = ("zero_traffic_ratio", 0.8, 2.5, 1.2, 0.30)
_SHARDING_ENGINES = (("deepspeed", "deepspeed_pipeline", "megatron_deepspeed"), ("fsdp",))
"""Software that shards by the same code. Megatron's distributed optimizer moves flat buffers. The
releases of 2021, which most of DeepSpeed's rows ran, gathered parameter by parameter and would have
it at four; today's gather what belongs together at once, hence the bound."""


def document(coefficients: Coefficients) -> dict[str, Any]:
    """The coefficients as the nested document they are shipped as."""
    found: dict[str, Any] = json.loads(coefficients.model_dump_json())
    return found


def free_parameters(coefficients: Coefficients) -> list[Parameter]:
    """Every figure that rows can move, present in the coefficients and above zero."""
    doc = document(coefficients)
    found: list[Parameter] = []

    def add(places: Sequence[tuple[str, str]], limits: Limits) -> None:
        name, low, high, expected, spread = limits
        at = tuple((g, k, name) for g, k in places if doc[g][k].get(name, 0) > 0)
        if at:
            found.append(Parameter(at, low, high, expected, spread))

    for pattern, architecture, sustained in _GPU_CLASSES:
        places = [("gpus", n) for n in doc["gpus"] if re.match(pattern, n)]
        if architecture in doc["architectures"]:
            places.append(("architectures", str(architecture)))
        for name, low, high, expected, spread in _GPU_FIELDS:
            usual = sustained if name == "gemm_efficiency" else expected
            if places:
                add(places, (name, low, high, usual, spread))
    for link, efficiency in _LINKS.items():
        for name, low, high, expected, spread in _LINK_FIELDS:
            usual = efficiency if efficiency and name == "efficiency" else expected
            add([("links", link)], (name, low, high, usual, spread))
    for network in _NETWORKS:
        for limits in _NETWORK_FIELDS:
            add([("networks", network)], limits)
    for software in doc["software"]:
        for limits in _SOFTWARE_FIELDS:
            add([("software", software)], limits)
    for engine in _SHARDING_ENGINES:
        add([("software", s) for s in engine], _SHARDING)
    return found


def value(doc: dict[str, Any], parameter: Parameter) -> float:
    """The parameter's figure in a document."""
    group, key, name = parameter.places[0]
    return float(doc[group][key][name])


def with_values(
    doc: dict[str, Any], parameters: Sequence[Parameter], values: Sequence[float]
) -> Coefficients:
    """The coefficients of a document with the parameters at these values."""
    changed: dict[str, Any] = json.loads(json.dumps(doc))
    for parameter, figure in zip(parameters, values, strict=True):
        for group, key, name in parameter.places:
            changed[group][key][name] = float(figure)
    return Coefficients.model_validate(changed)
