"""What the world gives: the model, the cluster, the training run."""

from cost_model.specs.architectures import from_config
from cost_model.specs.cluster import ClusterSpec, Gpu, Link, Network, Node, Nvme
from cost_model.specs.errors import SpecError
from cost_model.specs.geometry import ModelGeometry, explicit
from cost_model.specs.model import Attention, LatentAttention, Layer, Mlp, ModelSpec, Moe
from cost_model.specs.training import AttentionKernel, Lora, Optimizer, Precision, TrainingSpec

__all__ = [
    "Attention",
    "AttentionKernel",
    "ClusterSpec",
    "Gpu",
    "LatentAttention",
    "Layer",
    "Link",
    "Lora",
    "Mlp",
    "ModelGeometry",
    "ModelSpec",
    "Moe",
    "Network",
    "Node",
    "Nvme",
    "Optimizer",
    "Precision",
    "SpecError",
    "TrainingSpec",
    "explicit",
    "from_config",
]
