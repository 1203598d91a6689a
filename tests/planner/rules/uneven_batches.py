"""What the real engine does with unequal micro-batches: prints one JSON line of two ranks' answers.

`python -m tests.planner.rules.uneven_batches [TOTAL]`: rank 0 asks for 3 sequences a micro-batch,
rank 1 for one; TOTAL is train_batch_size, left out where it is not given.
"""

import json
import os
import sys
from multiprocessing import Queue, get_context
from typing import Any

MICRO_BATCHES = (3, 1)
INPUTS = (1.0, 5.0)
"""Of every sequence of a rank. The model is its input times a weight, the loss that: the gradient
over all four sequences is (3 x 1 + 5) / 4 = 2."""


def rank(number: int, port: int, total: int | None, answers: "Queue[Any]") -> None:
    """One rank: its gradient, or the error."""
    os.environ |= {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": "2",
        "LOCAL_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "DS_ACCELERATOR": "cpu",
        "DEEPSPEED_LOG_LEVEL": "error",
    }
    import deepspeed
    import deepspeed.ops
    import torch
    from deepspeed.utils import safe_get_full_grad

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled
    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": MICRO_BATCHES[number],
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    if total is not None:
        config["train_batch_size"] = total
    try:
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )
        loss = engine(torch.full((MICRO_BATCHES[number], 1), INPUTS[number])).mean()
        engine.backward(loss)
        answers.put(float(safe_get_full_grad(model.weight)))
    except AssertionError as error:
        answers.put(str(error))


def main() -> None:
    """Starts both ranks."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    total = int(sys.argv[1]) if len(sys.argv) > 1 else None
    context = get_context("spawn")
    answers = context.Queue()
    ranks = [context.Process(target=rank, args=(i, port, total, answers)) for i in (0, 1)]
    for process in ranks:
        process.start()
    found = [answers.get(timeout=200) for _ in ranks]
    for process in ranks:
        process.join(30)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
