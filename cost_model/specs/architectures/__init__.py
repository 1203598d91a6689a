"""Readers of config.json, a file for each group of architectures that are alike."""

# The readers register themselves when they are imported.
from cost_model.specs.architectures import (
    gemma,
    gpt,
    latent,
    layernorm,
    llama,
    mixture,
    postnorm,
)
from cost_model.specs.architectures.read import from_config
from cost_model.specs.architectures.stack import registered

__all__ = [
    "from_config",
    "gemma",
    "gpt",
    "latent",
    "layernorm",
    "llama",
    "mixture",
    "postnorm",
    "registered",
]
