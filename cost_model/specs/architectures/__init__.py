"""Readers of config.json, a file for each group of architectures that are alike."""

# The readers register themselves when they are imported.
from cost_model.specs.architectures import (
    encoder,
    encoder_decoder,
    encoder_variants,
    gemma,
    gemma3n,
    gpt,
    latent,
    layernorm,
    llama,
    mixture,
    postnorm,
    remote,
    wrapped,
)
from cost_model.specs.architectures.read import from_config
from cost_model.specs.architectures.stack import registered

__all__ = [
    "encoder",
    "encoder_decoder",
    "encoder_variants",
    "from_config",
    "gemma",
    "gemma3n",
    "gpt",
    "latent",
    "layernorm",
    "llama",
    "mixture",
    "postnorm",
    "registered",
    "remote",
    "wrapped",
]
