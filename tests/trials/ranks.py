"""Runs a function on ranks of its own: forked processes with a gloo group."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from typing import Any

from trials.executors.supervise import free_port, rank_environment
from trials.worker import prepare_imports

LIMIT_S = 120.0


def run_ranks(function: Callable[..., Any], world: int, *args: Any) -> list[Any]:
    """What the function returned on each rank; raises where one failed or took too long."""
    prepare_imports()
    context = multiprocessing.get_context("fork")
    port = free_port()
    pipes, processes = [], []
    for rank in range(world):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_rank, args=(theirs, rank, world, port, function, args))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    results: list[Any] = []
    try:
        for pipe in pipes:
            if not pipe.poll(LIMIT_S):
                raise TimeoutError(f"a rank took longer than {LIMIT_S} s")
            ok, value = pipe.recv()
            if not ok:
                raise RuntimeError(value)
            results.append(value)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return results


def _rank(
    pipe: Any, rank: int, world: int, port: int, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.environ.update(rank_environment(rank, world, port))
    try:
        import deepspeed
        import torch

        torch.set_num_threads(1)
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        pipe.send((True, function(rank, world, *args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    os._exit(0)
