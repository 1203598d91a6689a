"""The installed DeepSpeed's own verdict on a config, at any world size, in one process."""

import contextlib
import copy
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("DS_ACCELERATOR", "cpu")
pytest.importorskip("deepspeed")

import deepspeed.comm
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.tensor_parallel.init_utils import load_ds_config
from deepspeed.utils import logger


@contextlib.contextmanager
def _world(size: int) -> Iterator[None]:
    rank, world = deepspeed.comm.get_rank, deepspeed.comm.get_world_size
    deepspeed.comm.get_rank = lambda *a, **k: 0
    deepspeed.comm.get_world_size = lambda *a, **k: size
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        deepspeed.comm.get_rank, deepspeed.comm.get_world_size = rank, world


def refusal(document: Any, world_size: int) -> str | None:
    """Why DeepSpeedConfig refuses a dictionary; None where it accepts it."""
    with _world(world_size):
        try:
            DeepSpeedConfig(copy.deepcopy(document))
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
    return None


def refusal_of_text(text: str, world_size: int) -> str | None:
    """The same for a file, read as deepspeed.initialize reads it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ds_config.json"
        file.write_text(text, "utf-8")
        try:
            document = load_ds_config(str(file))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return refusal(document, world_size)
