"""What follows the last layer: norm, output matrix, loss."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from cost_model.memory.logits import CHUNKS
from trials.model.build import Build
from trials.model.norms import norm
from trials.model.unsupported import UnsupportedModel
from trials.parallel.tensor import copy_to, gather_sequence, mark_sharded
from trials.parallel.vocab import padded_vocab, vocab_parallel_cross_entropy


class Head(nn.Module):
    """Hidden states to the mean loss over this rank's tokens.

    Without a table of its own, where the weights are tied, it is given the token table.
    """

    def __init__(self, build: Build, *, own_table: bool):
        super().__init__()
        model, tp = build.model, build.mesh.tp
        self.build = build
        rest = model.head_params
        own = 0 if model.tied_embeddings else model.hidden * model.vocab
        rest -= own
        if rest < 0:
            raise UnsupportedModel(
                f"the head of {model.architecture} has no matrix from the hidden size to the "
                "vocabulary; trials train language models"
            )
        vectors = 2 if model.norm == "layernorm" and rest >= 2 * model.hidden else 1
        vectors = vectors if rest >= model.hidden else 0
        self.norm = norm(build, model.hidden, vectors) if vectors else None
        rest -= vectors * model.hidden
        self.weight: nn.Parameter | None = None
        if own_table:
            rows = padded_vocab(model.vocab, tp) // tp.size
            self.weight = nn.Parameter(torch.empty(rows, model.hidden))
            mark_sharded(self.weight, tp, 0)
        self.unmodelled = nn.Parameter(torch.empty(rest)) if rest > 0 else None

    def forward(self, x: Tensor, labels: Tensor, table: Tensor | None = None) -> Tensor:
        """x: [b, s, hidden] (a shard under sequence parallelism), labels: [b, s].

        table: the token table [vocab / tp, hidden] where the head has none.
        """
        weight = self.weight if table is None else table
        if weight is None:
            raise ValueError("a head with tied weights needs the token table")
        if self.norm is not None:
            x = self.norm(x)
        tp = self.build.mesh.tp
        x = gather_sequence(x, tp, reduce=True) if self.build.shards_sequence else copy_to(x, tp)
        x, labels = x.flatten(0, 1), labels.flatten()
        if self.build.chunked_loss:
            loss = self._in_chunks(x, labels, weight)
        elif tp.size == 1 and not self.build.vocabulary_loss:
            loss = functional.cross_entropy(functional.linear(x, weight).float(), labels)
        else:
            loss = self._losses(x, labels, weight).mean()
        if self.unmodelled is not None:
            loss = loss + 0.0 * self.unmodelled.sum()
        return loss

    def _losses(self, x: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        tp = self.build.mesh.tp
        logits = functional.linear(x, weight)
        padding = padded_vocab(self.build.model.vocab, tp) - self.build.model.vocab
        if padding and tp.rank == tp.size - 1:
            logits[..., -padding:] = torch.finfo(logits.dtype).min
        if tp.size == 1 and not self.build.vocabulary_loss:
            return functional.cross_entropy(logits.float(), labels, reduction="none")
        return vocab_parallel_cross_entropy(logits, labels, tp)

    def _in_chunks(self, x: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        total = x.new_zeros((), dtype=torch.float32)
        for part, truth in zip(x.chunk(CHUNKS), labels.chunk(CHUNKS), strict=True):
            total = total + checkpoint(self._chunk_sum, part, truth, weight, use_reentrant=False)
        return total / labels.numel()

    def _chunk_sum(self, x: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        return self._losses(x, labels, weight).sum()
