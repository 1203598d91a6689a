"""The transformer that dry runs and trials train, built from a ModelSpec."""

from trials.model.build import Build, build_model
from trials.model.transformer import Transformer

__all__ = ["Build", "Transformer", "build_model"]
