"""Models of a user, good and bad, for the worker to load."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_model.specs import ModelSpec, TrainingSpec


class Own(nn.Module):
    """A table, one matrix, a loss. Named 'narrow', it does not fit more than two sequences."""

    def __init__(self, model: ModelSpec):
        super().__init__()
        self.table = nn.Embedding(model.vocab, model.hidden)
        self.out = nn.Linear(model.hidden, model.vocab)
        self.largest = 2 if model.name == "narrow" else 10**9

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        if ids.shape[0] > self.largest:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        logits = self.out(self.table(ids))
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def own(model: ModelSpec, training: TrainingSpec) -> nn.Module:
    return Own(model)


class NoScalar(Own):
    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return self.out(self.table(ids))


class Wrapped(Own):
    def forward(self, ids: Tensor, labels: Tensor) -> Any:
        class Output:
            loss = super(Wrapped, self).forward(ids, labels)

        return Output()


def no_scalar(model: ModelSpec, training: TrainingSpec) -> nn.Module:
    return NoScalar(model)


def wrapped(model: ModelSpec, training: TrainingSpec) -> nn.Module:
    return Wrapped(model)


def no_module(model: ModelSpec, training: TrainingSpec) -> Any:
    return {"not": "a module"}


def takes_nothing() -> nn.Module:
    return nn.Linear(1, 1)


def no_parameters(model: ModelSpec, training: TrainingSpec) -> nn.Module:
    return nn.Identity()


not_callable = 3
