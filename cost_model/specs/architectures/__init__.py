"""Readers of config.json, a file for each group of architectures that are alike."""

from cost_model.specs.architectures import gpt, llama, mixture  # they register themselves
from cost_model.specs.architectures.read import from_config
from cost_model.specs.architectures.stack import registered

__all__ = ["from_config", "gpt", "llama", "mixture", "registered"]
