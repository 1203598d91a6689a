"""What a model is made of, as far as memory and time depend on it: geometry, never weights."""

from typing import Literal, Self

from pydantic import Field, model_validator

from cost_model.specs.frozen import Frozen


class LatentAttention(Frozen):
    """Low-rank projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1)."""

    q_lora_rank: int | None
    """Rank of the query's down-projection; None projects the query directly."""
    kv_lora_rank: int
    nope_head_dim: int
    rope_head_dim: int


class Attention(Frozen):
    """One attention sub-layer."""

    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    """Width of a query and key head (nope + rope for latent attention)."""
    value_head_dim: int = Field(ge=1)
    qkv_bias: bool = False
    out_bias: bool = False
    causal: bool = True
    window: int | None = None
    """Sliding window in tokens; None attends to the whole sequence."""
    latent: LatentAttention | None = None
    qk_norm: bool = False
    """Queries and keys are normalised before they meet."""


class Mlp(Frozen):
    """One dense feed-forward sub-layer."""

    intermediate: int = Field(ge=1)
    gated: bool
    bias: bool = False


class Moe(Frozen):
    """One mixture-of-experts sub-layer. Shared experts run for every token."""

    experts: int = Field(ge=1)
    top_k: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    gated: bool = True
    bias: bool = False
    shared_intermediate: int = 0
    """Width of all shared experts together; 0 has none."""


class Layer(Frozen):
    """One kind of transformer layer. A model has few kinds and many layers.

    The parameter counts are of the whole layer on one device, by how they shard:
    `tp_sharded_params` divide by the tensor-parallel degree, `replicated_params` (norms, router,
    low-rank down-projections, biases of row-parallel matrices) do not, `expert_params` (all
    experts together) divide by the expert-parallel degree and by TP.
    """

    attention: Attention | None
    mlp: Mlp | None
    moe: Moe | None = None
    cross_attention: Attention | None = None
    norms: int
    """How many norms over the hidden size run per token."""
    parallel_residual: bool = False
    """Attention and MLP read the same input (GPT-J, NeoX, Falcon, Cohere)."""
    tp_sharded_params: int
    replicated_params: int
    expert_params: int = 0
    matmul_params: int
    """Weights of dense matrices that every token passes: attention, MLP, router, shared experts.

    No embeddings, no routed experts, no norms, no biases.
    """

    @property
    def params(self) -> int:
        """Parameters of the layer."""
        return self.tp_sharded_params + self.replicated_params + self.expert_params


class ModelSpec(Frozen):
    """A transformer's geometry. `layer_pattern[i]` is the kind of layer i (index into `kinds`)."""

    name: str
    architecture: str
    """The transformers class, such as LlamaForCausalLM, or 'explicit'."""
    family: Literal["decoder", "encoder", "encoder_decoder"] = "decoder"
    hidden: int = Field(ge=1)
    vocab: int = Field(ge=1)
    max_seq_len: int | None = None
    """Longest sequence of the position scheme; None has no limit."""
    kinds: tuple[Layer, ...]
    layer_pattern: tuple[int, ...]
    """Encoder layers first where there is an encoder."""
    encoder_layers: int = 0
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    position: Literal["rotary", "learned", "alibi", "relative", "none"] = "rotary"
    activation: str = "silu"
    tied_embeddings: bool = False
    embedding_params: int
    """Token table, and position and type tables where they exist (first stage)."""
    head_params: int
    """Final norm, the output matrix unless tied, pooler and such (last stage)."""
    head_matmul_params: int
    """Weights every token multiplies in the head, tied or not (hidden x vocab)."""
    dropout: float = 0.0
    trained_in: Literal["bf16", "fp16", "fp32"] | None = None
    notes: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.layer_pattern)

    @property
    def layer_counts(self) -> tuple[int, ...]:
        """How many layers there are of each kind."""
        return tuple(self.layer_pattern.count(kind) for kind in range(len(self.kinds)))

    @property
    def params(self) -> int:
        """Parameters of the model, tied weights once: equal to the transformers class's count."""
        counts = zip(self.kinds, self.layer_counts, strict=True)
        per_layer = sum(count * kind.params for kind, count in counts)
        return self.embedding_params + per_layer + self.head_params

    @property
    def is_moe(self) -> bool:
        """Whether any layer has experts."""
        return any(kind.moe is not None for kind in self.kinds)

    @model_validator(mode="after")
    def _pattern_names_kinds(self) -> Self:
        if not self.layer_pattern or not all(0 <= k < len(self.kinds) for k in self.layer_pattern):
            raise ValueError("layer_pattern must be non-empty and index into kinds")
        return self
