"""What is known by name: GPUs, machines and their sources, as data files."""

from cost_model.catalogue.hardware import (
    cluster,
    cluster_names,
    cluster_source,
    gpu,
    gpu_names,
    link,
    network,
)

__all__ = [
    "cluster",
    "cluster_names",
    "cluster_source",
    "gpu",
    "gpu_names",
    "link",
    "network",
]
