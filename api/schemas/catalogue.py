"""What is known by name, as the routes and the command line show it."""

from typing import Any

from pydantic import BaseModel

from cost_model import catalogue
from cost_model.specs import ClusterSpec, Gpu


class ClusterPreset(BaseModel):
    """A machine that a request can name."""

    preset: str
    gpu: str
    gpus_per_node: int
    spec: ClusterSpec
    """One node of it."""


class Hardware(BaseModel):
    """GPUs and machines."""

    clusters: list[ClusterPreset]
    gpus: list[Gpu]


class ModelPreset(BaseModel):
    """A model that a request can name."""

    preset: str
    architecture: str
    parameters: int
    hidden: int
    layers: int
    vocab: int
    max_seq_len: int | None
    mixture_of_experts: bool
    notes: list[str]
    source: Any = None


class Models(BaseModel):
    """Models."""

    items: list[ModelPreset]


def known_hardware() -> Hardware:
    """GPUs and machines of the catalogue."""
    clusters = []
    for name in catalogue.cluster_names():
        spec = catalogue.cluster(name, 1)
        clusters.append(
            ClusterPreset(
                preset=name,
                gpu=spec.node.gpu.name,
                gpus_per_node=spec.node.gpus_per_node,
                spec=spec,
            )
        )
    return Hardware(clusters=clusters, gpus=[catalogue.gpu(n) for n in catalogue.gpu_names()])


def known_models() -> Models:
    """Model presets of the catalogue."""
    items = []
    for name in catalogue.model_names():
        spec = catalogue.model(name)
        items.append(
            ModelPreset(
                preset=name,
                architecture=spec.architecture,
                parameters=spec.params,
                hidden=spec.hidden,
                layers=spec.layers,
                vocab=spec.vocab,
                max_seq_len=spec.max_seq_len,
                mixture_of_experts=spec.is_moe,
                notes=list(spec.notes),
                source=catalogue.model_source(name),
            )
        )
    return Models(items=items)
