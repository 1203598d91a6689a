"""What trials are trained on: random tokens, or bytes that every machine has."""

import functools
import sysconfig
from pathlib import Path

import torch
from torch import Tensor

from trials.trial_file import TrialFile

BYTES_READ = 4_000_000
"""Enough for every trial; the standard library's sources have some thirty million."""


@functools.cache
def library_bytes() -> Tensor:
    """Sources of the Python standard library, file after file, as uint8."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= BYTES_READ:
            break
    return torch.frombuffer(text, dtype=torch.uint8)


def global_batch(trial: TrialFile, step: int) -> Tensor:
    """Token ids [grad_accum, dp, micro_batch, seq_len + 1] of one optimizer step.

    The same sequences, in the same order, whatever the layout.
    """
    plan = trial.plan
    shape = (plan.grad_accum, plan.dp, plan.micro_batch, trial.training.seq_len + 1)
    draw = torch.Generator().manual_seed(trial.seed + (0 if trial.same_batch else step))
    if trial.data == "random":
        return torch.randint(0, trial.model.vocab, shape, generator=draw)
    source = library_bytes()
    count = shape[0] * shape[1] * shape[2]
    starts = torch.randint(0, len(source) - shape[3], (count, 1), generator=draw)
    places = starts + torch.arange(shape[3])
    return (source[places].long() % trial.model.vocab).view(shape)


def micro_batches(
    trial: TrialFile, step: int, *, dp_rank: int, part: int, parts: int, device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    """This rank's token ids and labels, one pair for each micro-batch.

    part of parts: which shard of the sequence this rank sees.
    """
    mine = global_batch(trial, step)[:, dp_rank]
    length = trial.training.seq_len // parts
    seen = slice(part * length, (part + 1) * length)
    return [
        (
            one[:, :-1][:, seen].contiguous().to(device),
            one[:, 1:][:, seen].contiguous().to(device),
        )
        for one in mine
    ]
