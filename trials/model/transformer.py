"""The whole model on one pipeline stage: embedding, layers, head."""

from torch import Tensor, nn

from trials.model.block import Block
from trials.model.build import Build
from trials.model.embedding import Embedding
from trials.model.head import Head
from trials.model.lora import freeze_base
from trials.model.positions import Positions
from trials.model.recompute import run_layers
from trials.model.unsupported import UnsupportedModel
from trials.parallel.tensor import sum_sequence_parallel_grads


class Transformer(nn.Module):
    """Token ids and labels to the loss. Parameters are as many as the ModelSpec says."""

    def __init__(self, build: Build):
        super().__init__()
        model = build.model
        if model.family == "encoder_decoder":
            raise UnsupportedModel("encoder-decoder models are not built in trials")
        self.build = build
        self.positions = Positions()
        self.embedding = Embedding(build)
        self.layers = nn.ModuleList(
            Block(build, model.kinds[kind], self.positions) for kind in model.layer_pattern
        )
        self.head = Head(build, own_table=not model.tied_embeddings)
        freeze_base(self, build)
        sum_sequence_parallel_grads(self, build.mesh.tp)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """ids and labels: [b, s], this rank's shard of the sequence; returns the mean loss."""
        x = self.embedding(ids)
        x = run_layers(self.build, self.layers, x)
        table = self.embedding.table if self.build.model.tied_embeddings else None
        loss: Tensor = self.head(x, labels, table)
        return loss


def parameter_count(model: nn.Module) -> int:
    """Parameters, tied ones once, at their whole shape where ZeRO-3 has partitioned them."""
    return sum(int(getattr(p, "ds_numel", p.numel())) for p in model.parameters())
