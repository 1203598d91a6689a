"""How a model is built: its geometry, the techniques that the plan asks for, this rank's place."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cost_model.plans import Plan, Recompute, Software
from cost_model.specs import AttentionKernel, Lora, ModelSpec, TrainingSpec
from trials.parallel.mesh import Axis, Mesh

if TYPE_CHECKING:
    from trials.model.transformer import Transformer


@dataclass(frozen=True)
class Build:
    """Everything that the modules of a model need to know."""

    model: ModelSpec
    mesh: Mesh = field(default_factory=Mesh)
    attention: AttentionKernel = "sdpa"
    fused_norm: bool = False
    dropout: float = 0.0
    recompute: Recompute = Recompute.NONE
    recompute_layers: int = -1
    """How many layers of this rank's stage are recomputed, the first ones; -1 is all."""
    end_layers: tuple[int, int] = (0, 0)
    """Layers of the first and the last pipeline stage; 0 is an even share."""
    placement: int = 0
    """Stages and layers on each group of different nodes; 0 where all nodes count as equal."""
    deepspeed_checkpointing: bool = False
    """Through deepspeed.checkpointing, which can partition and offload the kept inputs."""
    vocabulary_loss: bool = False
    """Megatron's loss, which works on a rank's part of the vocabulary, also where that is all."""
    chunked_loss: bool = False
    sequence_parallel: bool = False
    ep: int = 1
    capacity_factor: float = 0.0
    """Tokens an expert takes over its fair share; 0 is dropless."""
    lora: Lora | None = None
    engine_tp: Axis = field(default_factory=Axis)
    """Ranks over which DeepSpeed's engine cuts the whole model afterwards (AutoTP)."""

    @property
    def heads_axis(self) -> Axis:
        """Ranks that hold different heads, whoever cut them; before Ulysses trades heads."""
        return self.engine_tp if self.engine_tp.size > 1 else self.mesh.tp

    @property
    def shards_sequence(self) -> bool:
        """Whether norms and residuals see a shard of the sequence (over the TP ranks)."""
        return self.sequence_parallel and self.mesh.tp.size > 1

    @property
    def deepspeed_experts(self) -> bool:
        """Whether experts are DeepSpeed's layer (expert parallel, or with a capacity)."""
        return self.ep > 1 or self.capacity_factor > 0

    @classmethod
    def of_plan(
        cls, model: ModelSpec, training: TrainingSpec, plan: Plan, mesh: Mesh | None = None
    ) -> "Build":
        """The build that a plan asks for."""
        return cls(
            model=model,
            mesh=mesh or Mesh(),
            attention=training.attention,
            # Megatron's norms and loss are kernels of its own.
            fused_norm=training.fused_norm or plan.software is Software.MEGATRON_DEEPSPEED,
            vocabulary_loss=plan.software is Software.MEGATRON_DEEPSPEED,
            dropout=training.dropout,
            recompute=plan.recompute,
            recompute_layers=plan.recompute_layers,
            end_layers=(plan.first_stage_layers, plan.last_stage_layers),
            placement=plan.placement,
            deepspeed_checkpointing=plan.partition_activations or plan.cpu_checkpointing,
            chunked_loss=plan.chunked_loss,
            sequence_parallel=plan.sequence_parallel,
            ep=plan.ep,
            capacity_factor=plan.capacity_factor,
            lora=training.lora,
        )


def own_tensor_parallel(software: Software) -> bool:
    """Whether tensor parallelism is in the layers; DeepSpeed's engine else cuts them (AutoTP)."""
    return software is not Software.DEEPSPEED


def build_model(build: Build, *, seed: int | None = None) -> "Transformer":
    """The model of this rank on the current default device and dtype.

    With a seed, weights are drawn so that every layout of the same model starts from the same
    values: each rank draws the whole matrix and keeps its part. Without one they are left
    uninitialised. Raises UnsupportedModel for a geometry that is not built here.
    """
    from trials.model.init import initialise
    from trials.model.transformer import Transformer, parameter_count
    from trials.model.unsupported import UnsupportedModel

    model = Transformer(build)
    whole = build.mesh.tp.size == build.ep == 1 and build.lora is None
    if whole and (count := parameter_count(model)) != build.model.params:
        raise UnsupportedModel(
            f"{build.model.architecture} has {build.model.params} parameters, what trials build of "
            f"it {count}: part of its structure is not built"
        )
    if seed is not None:
        initialise(model, seed)
    return model
