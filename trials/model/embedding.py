"""What stands before the first layer: token table, position table, what follows them."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from trials.model.attention import sequence_offset
from trials.model.build import Build
from trials.model.kernels import drop
from trials.model.unsupported import UnsupportedModel
from trials.parallel.mesh import Axis
from trials.parallel.tensor import scatter_sequence
from trials.parallel.vocab import VocabParallelEmbedding


class Embedding(nn.Module):
    """Token ids to hidden states, sharded by sequence under sequence parallelism."""

    def __init__(self, build: Build):
        super().__init__()
        model = build.model
        self.build = build
        tp: Axis = build.mesh.tp
        self.embed_tokens: nn.Module
        if tp.size == 1:
            self.embed_tokens = nn.Embedding(model.vocab, model.hidden)
        else:
            self.embed_tokens = VocabParallelEmbedding(model.vocab, model.hidden, tp)
        rest = model.embedding_params - model.vocab * model.hidden
        self.embed_positions: nn.Parameter | None = None
        if model.position == "learned" and rest >= model.hidden:
            self.embed_positions = nn.Parameter(torch.empty(rest // model.hidden, model.hidden))
            rest %= model.hidden
        if rest < 0:
            raise UnsupportedModel("the token table is narrower than the hidden size")
        self.unmodelled = nn.Parameter(torch.empty(rest)) if rest else None

    @property
    def table(self) -> Tensor:
        """The token table [vocab / tp, hidden]."""
        weight = self.embed_tokens.weight
        if not isinstance(weight, Tensor):
            raise TypeError("the token table has no weight")
        return weight

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [b, s]; returns [b, s, hidden]."""
        x = self.embed_tokens(ids)
        if self.embed_positions is not None:
            offset = sequence_offset(self.build, ids.shape[1])
            place = torch.arange(offset, offset + ids.shape[1], device=ids.device)
            x = x + functional.embedding(place, self.embed_positions)
        if self.unmodelled is not None:
            x = x + 0.0 * self.unmodelled.sum()
        if self.build.shards_sequence:
            x = scatter_sequence(x, self.build.mesh.tp)
        return drop(x, self.build.dropout if self.training else 0.0)
