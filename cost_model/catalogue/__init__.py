"""What is known by name: GPUs, machines, models and their sources, as data files."""

from cost_model.catalogue.hardware import (
    cluster,
    cluster_names,
    cluster_source,
    gpu,
    gpu_names,
    link,
    link_names,
    network,
    network_names,
)
from cost_model.catalogue.models import model, model_config, model_names, model_source

__all__ = [
    "cluster",
    "cluster_names",
    "cluster_source",
    "gpu",
    "gpu_names",
    "link",
    "link_names",
    "model",
    "model_config",
    "model_names",
    "model_source",
    "network",
    "network_names",
]
