"""Which coefficients of the step-time model are free, between what bounds, and what is expected.

A parameter is one physical figure; it may stand at several places of the file (the same GPU sold
with 40 and 80 GB). Expected values and their spread keep figures that the data hardly sees from
running away: where a GPU type or a link has no rows, its parameter stays where it is expected.
"""

import itertools
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
    (r"h100-96g-500w", None, 0.55),
    (r"b200", "blackwell", 0.70),
    (r"t4", "turing", 0.40),
    (r"a10g", None, 0.70),
    (r"l4$", None, 0.50),
)
"""GPU types that share their silicon and power limit, the architecture whose default they set, and
the share of the matrix peak that one would expect: nine tenths of the best products that public
tables show (Bekman, "ML Engineering", maximum achievable matmul FLOPS), less on cards of 70 W; an
H100 of 500 W runs its products at the square root of 5/7 of the clock of one of 700 W."""

_SILICON = {"h100-96g-500w": "h100-sxm"}
"""GPU types that share with another all but what their power limit sustains."""
_POWERED = ("gemm_efficiency", "gemm_issue_efficiency")

_PUBLISHED: dict[tuple[str, str], tuple[float, float]] = {
    (r"t4", "memory_efficiency"): (0.69, 0.10),
    (r"v100-\d+g-sxm2", "memory_efficiency"): (0.83, 0.10),
    (r"v100-32g-sxm3", "memory_efficiency"): (0.83, 0.10),
    (r"(h100|h800|h200|gh200)(?!.*500w)", "flash2_efficiency"): (0.35, 0.15),
    (r"a100|a800", "flash1_efficiency"): (0.30, 0.05),
    ("nvswitch", "efficiency"): (0.73, 0.05),
    ("nvswitch", "base_us"): (60.0, 0.30),
    ("pcie/a10g", "efficiency"): (0.055, 0.25),
    ("pcie/l4", "efficiency"): (0.145, 0.25),
    ("pcie/t4", "efficiency"): (0.25, 0.25),
    ("infiniband", "efficiency"): (0.88, 0.10),
    ("omnipath", "efficiency"): (0.18, 0.25),
    ("ethernet", "efficiency"): (0.92, 0.08),
}
"""Expectations and spreads where public figures place one type elsewhere than its kind. Memory: 220
of 320 and 750 of 900 GB/s (Jia et al., "Dissecting the NVidia Turing T4 GPU via microbenchmarking",
arXiv 1903.07486). FlashAttention: the first version on A100 85 to 100 TFLOP/s of 312 under a mask
(arXiv 2307.08691, figures 4 to 6), the second on Hopper 35 % (arXiv 2407.08608). NVSwitch:
reductions of 1 MiB to 4 GiB over 2, 4 and 8 A100 take 76 to 100 us and 197 to 226 GB/s of 300
(Mist's and Sailor's tables agree to 5 %); some of the start is the measurement's. PCIe: public
collective benchmarks of GPUs without peer copies. InfiniBand: the same of eight ports a node, nine
tenths with gigabytes. Omni-Path: one group of all GPUs of 4 and of 16 nodes with four ports reduced
4 GB at 10.6 and 6.9 GB/s of 50 (BigScience, experiments/bandwidth). Ethernet: TCP frames carry 95
to 99 % payload; what a fast port cannot reach is in `port_gb_per_s`."""

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
    ("comm_slowdown", 0.05, 0.60, 0.40, 0.20),
)
_LINK_FIELDS: tuple[Limits, ...] = (
    ("efficiency", 0.03, 0.98, 0.55, 0.25),
    ("base_us", 2.0, 120.0, 30.0, 0.50),
)
"""NCCL on NVLink and NVSwitch reaches 0.44 to 0.68 of the data sheet with 15 to 40 MB, which is
what a layer sends, and 0.63 to 0.80 with 100 MB (profiles of A100, V100 and GH200 nodes)."""
_LINKS = ("nvswitch", "nvlink", "nvlink/gh200-96g", "pcie/a10g", "pcie/l4", "pcie/t4")
"""Links that rows cross. The others keep their figures."""
_NETWORKS = ("infiniband", "roce", "ethernet", "efa", "omnipath")
_NETWORK_FIELDS: tuple[Limits, ...] = (
    ("efficiency", 0.03, 0.98, 0.60, 0.35),
    ("hop_us", 0.2, 60.0, 4.0, 0.70),
    ("port_gb_per_s", 0.5, 20.0, 2.0, 0.30),
    ("group_gb_per_s", 0.5, 50.0, 6.9, 0.25),
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
_SAME_HOST = {"deepspeed_2021": "megatron_deepspeed"}
"""Software that differs from another in what sharding costs alone."""
_SHARDING: dict[tuple[str, ...], tuple[float, float, float]] = {
    ("deepspeed", "deepspeed_pipeline", "megatron_deepspeed"): (2.5, 1.2, 0.30),
    ("deepspeed_2021",): (3.0, 2.0, 0.30),
    ("fsdp",): (2.5, 1.2, 0.10),
}
"""Highest, expected and spread of `zero_traffic_ratio`, by software that shards by the same code.
Megatron's distributed optimizer moves flat buffers, as FSDP does once it has copied into them; its
runs are long enough to hide nearly all of it, so that they say little. DeepSpeed's ZeRO 3 of 2021
gathered parameter by parameter; today's gathers what belongs together at once."""

_COPIES: Limits = ("tp_traffic_ratio", 1.0, 2.5, 1.15, 0.20)
_COPYING = ("aa_scaling", "nanotron", "fsdp")
"""Frameworks whose tensor parallelism is written in PyTorch's own collectives, with copies around
them. Megatron's, which DeepSpeed's examples use too, hands its buffers over as they are."""


def document(coefficients: Coefficients) -> dict[str, Any]:
    """The coefficients as the nested document they are shipped as."""
    found: dict[str, Any] = json.loads(coefficients.model_dump_json(exclude_none=True))
    return found


def free_parameters(coefficients: Coefficients) -> list[Parameter]:
    """Every figure that rows can move, present in the coefficients and above zero."""
    doc = document(coefficients)
    found: list[Parameter] = []

    def add(places: Sequence[tuple[str, str]], limits: Limits) -> None:
        name, low, high, expected, spread = limits
        at = tuple((g, k, name) for g, k in places if (doc[g][k].get(name) or 0) > 0)
        if at:
            found.append(Parameter(at, low, high, expected, spread))

    def near(key: str, limits: Limits) -> Limits:
        name, low, high, *usual = limits
        return name, low, high, *_PUBLISHED.get((key, name), (usual[0], usual[1]))

    for pattern, architecture, sustained in _GPU_CLASSES:
        for name, low, high, expected, spread in _GPU_FIELDS:
            of = {n: n if name in _POWERED else _SILICON.get(n, n) for n in doc["gpus"]}
            places = [("gpus", n) for n in doc["gpus"] if re.match(pattern, of[n])]
            if architecture in doc["architectures"]:
                places.append(("architectures", str(architecture)))
            usual = sustained if name == "gemm_efficiency" else expected
            add(places, near(pattern, (name, low, high, usual, spread)))
    for link, limits in itertools.product(_LINKS, _LINK_FIELDS):
        add([("links", link)], near(link, limits))
    for network, limits in itertools.product(_NETWORKS, _NETWORK_FIELDS):
        add([("networks", network)], near(network, limits))
    for software, limits in itertools.product(doc["software"], _SOFTWARE_FIELDS):
        like = [n for n in doc["software"] if _SAME_HOST.get(n) == software]
        if software not in _SAME_HOST:
            add([("software", n) for n in (software, *like)], limits)
    for engine, (most, expected, spread) in _SHARDING.items():
        places = [("software", s) for s in engine if s in doc["software"]]
        add(places, ("zero_traffic_ratio", 0.8, most, expected, spread))
    for framework in _COPYING:
        add([("software", framework)], _COPIES)
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
