"""From a case's fields to a cluster."""

import re

from cost_model.specs.cluster import ClusterSpec
from tests.benchmarks.cases.fields import Fields, numbers, text, whole
from tests.benchmarks.rows.assumptions import Ledger
from tests.benchmarks.rows.hardware import AMPLE_HOST_GIB, cluster_of
from tests.benchmarks.rows.raw import RawRow


def cluster_for(case: Fields, gpus: int, gpu: str | None = None) -> ClusterSpec:
    """The cluster of a case with that many GPUs.

    gpu: which of several GPU types. Skip where none is stated.
    """
    stated: Fields = case.get("cluster") or {}
    observed: Fields = case.get("observed") or {}
    chip = gpu or str(stated.get("gpu") or "") or _usual_gpu(case, observed)
    chip = re.sub(r"(?i)\brtx ?", "RTX ", chip.split(" / ")[0])
    memory = re.search(r"(\d+(?:\.\d+)?) ?gb", chip.lower())
    if re.fullmatch(r"\d+ ?gb", chip.lower().strip()):
        chip = {24: "RTX 3090", 80: "A100-80GB", 40: "A100-40GB"}.get(
            int(memory.group(1)) if memory else 0, ""
        )
    one_host = "gb_per_rank" in observed
    nodes = whole(stated, "nodes") or (-(-gpus // 8) if gpus > 8 and not one_host else 1)
    inter = text(stated, "inter", "network")
    raw = RawRow(
        {
            "gpu": chip,
            "gpu_mem_gb": str(round(float(memory.group(1)))) if memory else "",
            "gpus_per_node": str(max(1, gpus // nodes)),
            "nodes": str(nodes),
            "interconnect": inter,
        }
    )
    cluster = cluster_of(raw, gpus, Ledger())
    ram = _of_cluster(stated, "host_ram_gb", gpus)
    if ram is not None and "per gpu" in text(stated, "host_ram_gb"):
        ram *= cluster.node.gpus_per_node
    if ">" in text(stated, "host_ram_gb"):
        ram = None
    node = cluster.node.model_copy(update={"host_ram_gib": (ram or 0) / 1.0737 or AMPLE_HOST_GIB})
    if "ethernet" in inter or "no ib" in inter:
        speed = numbers(inter)
        network = cluster.network.model_copy(
            update={
                "kind": "ethernet",
                "gbps_per_port": speed[0] if speed else 10.0,
                "ports_per_node": 1,
                "latency_us": 50.0,
            }
        )
        cluster = cluster.model_copy(update={"network": network})
    return cluster.model_copy(update={"node": node})


def _usual_gpu(case: Fields, observed: Fields) -> str:
    """The GPU where none is stated: that project's own; a large one where it ran, or died of the
    host's RAM."""
    if "mosaicml" in text(case, "source"):
        return "A100-40GB"
    return "H100-80GB" if {"oom_host", "fits"} & {text(observed, "outcome")} else ""


def _of_cluster(stated: Fields, name: str, gpus: int) -> float | None:
    """A figure of the cluster; the one of that many GPUs where both are lists."""
    figures, counts = numbers(stated.get(name)), numbers(stated.get("gpus"))
    if len(figures) == len(counts) and float(gpus) in counts:
        return figures[counts.index(float(gpus))]
    return figures[0] if figures else None
