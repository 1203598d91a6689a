"""The engine's answer without the engine is the installed engine's answer."""

import copy
import json
import random
from typing import Any

import pytest

from planner.check import engine, schema
from tests.check import installed

WORLDS = (1, 2, 8)
VALUES: list[Any] = [
    0, 1, 2, 3, -1, 1.5, 5e8, "auto", "5e8", "3", True, False, None, [], {}, [1], ["a"], "cpu",
    "nvme", "x", 1e30, {"enabled": True}, {"a": 1}, "fp16", "sum", "torch", "", 10**30, "1.0",
    "true", 0.5, "none", "Ignore", 2.0,
]  # fmt: skip
STRANGE_KEYS = [
    "strict", "self", "foo", "zero_optimisation", "max_grad_norm", "throughput", "params", "type",
    "mics_shard_size", "nebula", "sequence_parallel_size",
]  # fmt: skip
TEXTS = {
    "plain": '{"train_batch_size": 8}',
    "comments and a trailing comma": '{"train_batch_size": 8, // all\n # more\n}',
    "single quotes": "{'train_batch_size': 8}",
    "Python's True is a string": '{"train_batch_size": 8, "fp16": {"enabled": True\n}}',
    "bare keys": "train_batch_size: 8\nsteps_per_print: 2",
    "a duplicate": '{"train_batch_size": 8, "train_batch_size": 8}',
    "scientific notation": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, '
    '"reduce_bucket_size": 5e8}}',
    "a placeholder": '{"train_batch_size": GBSIZE\n}',
    "a list": "[1, 2]",
    "nothing": "",
    "not closed": '{"train_batch_size": 8',
    "a byte-order mark": '\ufeff{"train_batch_size": 8}',
    "the old form": '{"train_batch_size": 8, "zero_optimization": true}',
    "old and new offload": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, '
    '"cpu_offload": true, "offload_optimizer": {"device": "cpu"}}}',
    "sequence parallel": '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, '
    '"gradient_accumulation_steps": 1, "sequence_parallel_size": 2}',
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_refused_exactly_where_deepspeed_refuses_it(name: str, world: int) -> None:
    theirs = installed.refusal_of_text(TEXTS[name], world)
    ours = engine.refusal_of_text(TEXTS[name], world, cuda=False)
    assert (theirs is None) == (ours is None), (theirs, ours)


def _mutation(rng: random.Random, paths: list[tuple[str, ...]]) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(
        rng.choice(
            [
                {"train_batch_size": 8},
                {"train_micro_batch_size_per_gpu": 1},
                {"train_batch_size": 16, "gradient_accumulation_steps": 2},
            ]
        )
    )
    for _ in range(rng.choice([1, 1, 1, 2, 3, 5])):
        path = rng.choice(paths)
        if rng.random() < 0.12:
            path = (*path[:-1], rng.choice(STRANGE_KEYS))
        node = document
        for part in path[:-1]:
            if not isinstance(node.get(part), dict):
                node[part] = {}
            node = node[part]
        node[path[-1]] = copy.deepcopy(rng.choice(VALUES))
    return document


def test_two_thousand_mutations_are_refused_exactly_where_deepspeed_refuses_them() -> None:
    rng = random.Random(20)
    paths = list(schema.load().paths.values())
    wrong = []
    accepted = 0
    for _ in range(2000):
        document, world = _mutation(rng, paths), rng.choice(WORLDS)
        theirs = installed.refusal(document, world)
        ours = engine.refusal(copy.deepcopy(document), world, cuda=False)
        accepted += theirs is None
        if (theirs is None) != (ours is None):
            wrong.append((world, json.dumps(document), theirs, ours))
    assert not wrong
    assert accepted > 200
