"""PyTorch without its compiler, which a dry run does not use and which takes seconds to load."""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


class NoCompiler(ModuleType):
    """Stands where torch._dynamo is imported: half of PyTorch asks it not to compile a function.

    That is all that is asked for here, and the real one takes seconds to load. It is loaded
    all the same if something else of it is used.
    """

    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)

    @staticmethod
    def disable(function: Any = None, *_: Any, **__: Any) -> Any:
        """Leaves the function as it is."""
        return function or (lambda f: f)

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None:
        """There is no graph (torch's optimizers ask for it at every step)."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if find_spec(f"torch._dynamo.{name}") is not None:
            return importlib.import_module(f"torch._dynamo.{name}")
        sys.modules.pop("torch._dynamo", None)
        vars(torch).pop("_dynamo", None)
        return getattr(importlib.import_module("torch._dynamo"), name)


def skip_the_compiler() -> None:
    """Nothing is compiled here: no wrapper around each call, no import of Dynamo or Inductor.

    A check of the optimizer imports Muon, whose decorator would load both.
    """
    if "torch._dynamo" not in sys.modules:
        stub = NoCompiler("torch._dynamo")
        stub.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]  # its parts can be imported
        sys.modules["torch._dynamo"] = stub
        torch._dynamo = stub
    original = torch.compile
    torch.compile = lambda function=None, **_: function or (lambda f: f)  # type: ignore[assignment]
    try:
        importlib.import_module("deepspeed.runtime.zero.muon.original_muon")
    finally:
        torch.compile = original
