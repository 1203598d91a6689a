"""DeepSpeed's own config parser, asked without processes."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import deepspeed.comm
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.utils import logger


class _Ranks:
    """Stands in for the mpu: only the size of the data-parallel world is asked."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size

    def get_data_parallel_world_size(self) -> int:
        return self.world_size


class _Collect(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def _listening() -> Iterator[_Collect]:
    collect = _Collect()
    logger.addHandler(collect)
    rank = deepspeed.comm.get_rank
    deepspeed.comm.get_rank = lambda *args, **kwargs: 0
    try:
        yield collect
    finally:
        deepspeed.comm.get_rank = rank
        logger.removeHandler(collect)


def parse(config: dict[str, Any], world_size: int) -> tuple[Any, list[str]]:
    """The parsed config and the warnings it gave; raises what the engine would raise."""
    with _listening() as collect:
        parsed = DeepSpeedConfig(deepcopy(config), mpu=_Ranks(world_size))
    return parsed, collect.messages
