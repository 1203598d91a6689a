"""What DeepSpeed itself does with a config, without DeepSpeed."""

from planner.check.engine.config import (
    BATCH_KEYS,
    Refusal,
    Triple,
    check_triple,
    complete_triple,
    data_parallel_ranks,
    read,
    refusal,
    refusal_of_text,
)

__all__ = [
    "BATCH_KEYS",
    "Refusal",
    "Triple",
    "check_triple",
    "complete_triple",
    "data_parallel_ranks",
    "read",
    "refusal",
    "refusal_of_text",
]
