"""What is known by name: GPUs, machines, models and their sources, as data files."""

from cost_model.catalogue.hardware import (
    cluster,
    cluster_names,
    cluster_source,
    gpu,
    gpu_names,
    link,
    network,
)
from cost_model.catalogue.models import model, model_config, model_names, model_source

__all__ = [
    "cluster",
    "cluster_names",
    "cluster_source",
    "gpu",
    "gpu_names",
    "link",
    "model",
    "model_config",
    "model_names",
    "model_source",
    "network",
]
