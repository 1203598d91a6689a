"""The model as a list of layers that DeepSpeed's PipelineModule cuts into stages."""

from itertools import accumulate
from typing import Any

from torch import Tensor, nn

from cost_model.memory.layout import stage_sizes
from cost_model.plans import Recompute
from trials.model.block import Block
from trials.model.build import Build
from trials.model.embedding import Embedding
from trials.model.head import Head
from trials.model.init import initialise
from trials.model.lora import freeze_base
from trials.model.positions import Positions
from trials.parallel.tensor import sum_sequence_parallel_grads


class EmbeddingLayer(nn.Module):
    """Token ids to hidden states."""

    def __init__(self, build: Build, seed: int | None):
        super().__init__()
        self.embedding = Embedding(build)
        freeze_base(self, build)
        if seed is not None:
            initialise(self, seed, build.mesh.tp)

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [b, s]."""
        return self.embedding(ids)


class BlockLayer(nn.Module):
    """One transformer layer, named as in the whole model so that it starts from its values."""

    def __init__(self, build: Build, index: int, positions: Positions, seed: int | None):
        super().__init__()
        kind = build.model.kinds[build.model.layer_pattern[index]]
        self.block = Block(build, kind, positions)
        freeze_base(self, build)
        if seed is not None:
            initialise(self.block, seed, build.mesh.tp, prefix=f"layers.{index}.")

    def forward(self, x: Tensor) -> Tensor:
        """x: [b, s, hidden]."""
        return self.block(x)


class Last:
    """Hands the head's module from the last layer to the loss function."""

    def __init__(self, build: Build):
        self.build = build
        self.head: Head | None = None
        self.table: Any = None

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        """x: [b, s, hidden], the output of the last layer; labels: [b, s]."""
        if self.head is None:
            raise RuntimeError("the loss is computed on the last stage only")
        return self.head(x, labels, self.table)


class HeadLayer(nn.Module):
    """Owns the head's parameters; what it does belongs to the loss, so logits never travel."""

    def __init__(self, build: Build, last: Last, seed: int | None):
        super().__init__()
        tied = build.model.tied_embeddings
        self.head = Head(build, own_table=not tied)
        last.head = self.head
        freeze_base(self, build)
        if seed is not None:
            initialise(self, seed, build.mesh.tp)

    def forward(self, x: Tensor) -> Tensor:
        """x: [b, s, hidden], unchanged."""
        return x


def pipeline_layers(build: Build, last: Last, seed: int | None) -> list[Any]:
    """Layer specs in order. A tied token table is on both ends; the engine keeps them equal."""
    from deepspeed.pipe import LayerSpec, TiedLayerSpec

    positions = Positions()
    blocks = [LayerSpec(BlockLayer, build, i, positions, seed) for i in range(build.model.layers)]
    head = LayerSpec(HeadLayer, build, last, seed)
    if not build.model.tied_embeddings:
        return [LayerSpec(EmbeddingLayer, build, seed), *blocks, head]
    name = "embedding.embed_tokens.weight"
    first = TiedLayerSpec("table", EmbeddingLayer, build, seed, tied_weight_attr=name)

    def remember(module: EmbeddingLayer, x: Tensor) -> Tensor:
        last.table = module.embedding.embed_tokens.weight
        return x

    second = TiedLayerSpec(
        "table", EmbeddingLayer, build, seed, forward_fn=remember, tied_weight_attr=name
    )
    return [first, *blocks, head, second]


def boundaries(build: Build, stages: int, specs: int) -> list[int]:
    """First layer spec of each stage, and the end: the embedding is on the first stage, whatever
    follows the blocks on the last."""
    sizes = stage_sizes(build.model.layers, stages, *build.end_layers, build.placement)
    inner = accumulate(sizes[:-1], initial=1)
    return [0, *list(inner)[1:], specs]


def pipeline_module(build: Build, topology: Any, *, seed: int | None) -> nn.Module:
    """The module of this rank's stage. Stages take equal numbers of layers, earlier ones more,
    unless the plan says how many the first and the last one, or a group of nodes, take."""
    from deepspeed.pipe import PipelineModule
    from deepspeed.runtime.activation_checkpointing import checkpointing

    class Cut(PipelineModule):  # type: ignore[misc]
        """With the layers of each stage as given."""

        def _partition_layers(self, method: str = "uniform") -> None:
            super()._partition_layers(method)
            if any(build.end_layers) or build.placement:
                stage = self._topo.get_coord(self.global_rank).pipe
                self.parts = boundaries(build, self.num_stages, len(self._layer_specs))
                self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])

    last = Last(build)
    module = Cut(
        layers=pipeline_layers(build, last, seed),
        loss_fn=last.loss,
        topology=topology,
        partition_method="type:BlockLayer",
        checkpointable_layers=["BlockLayer"],
        # Also where the config says nothing of it: Megatron's models bring their own setting.
        activation_checkpoint_interval=int(build.recompute is Recompute.FULL),
        activation_checkpoint_func=(
            checkpointing.checkpoint
            if build.deepspeed_checkpointing
            else checkpointing.non_reentrant_checkpoint
        ),
    )
    sum_sequence_parallel_grads(module, build.mesh.tp)
    return module
