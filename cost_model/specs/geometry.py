"""A model described by its numbers alone, where there is no config.json."""

from typing import Literal

from pydantic import AliasChoices, Field, ValidationInfo, field_validator

from cost_model.specs.architectures.kinds import kinds_of
from cost_model.specs.architectures.weights import (
    Weights,
    attention_weights,
    layer,
    mlp_weights,
    moe_weights,
    vector,
)
from cost_model.specs.frozen import MOST_COUNT, Frozen
from cost_model.specs.model import Attention, Layer, Mlp, ModelSpec, Moe

MOST_WIDTH = 2**28
"""Largest width of a matrix."""


def _names(name: str, *others: str) -> AliasChoices:
    return AliasChoices(name, *others)


class ModelGeometry(Frozen):
    """Explicit geometry of a transformer.

    Hidden size, layers and heads are enough. What is left out follows from `gated`: a gated MLP
    (the default) means a Llama-like model: RMS norms, rotary positions, no biases, untied
    output, MLP width 8/3 of the hidden size rounded up to 256. `gated=false` means a GPT-2-like
    one: layer norms, learned positions, biases, tied output, MLP width 4 x hidden.
    """

    name: str = "explicit"
    hidden: int = Field(
        ge=1, le=2**24, validation_alias=_names("hidden", "hidden_size", "d_model", "n_embd")
    )
    layers: int = Field(
        ge=1,
        le=10_000,
        validation_alias=_names("layers", "num_layers", "num_hidden_layers", "n_layer", "n_layers"),
    )
    """Layers of the decoder, or of the encoder where that is all there is."""
    head_dim: int | None = Field(
        default=None, ge=1, le=2**24, validation_alias=_names("head_dim", "kv_channels")
    )
    """Width of a head; hidden / heads where not given."""
    heads: int = Field(
        ge=1,
        le=MOST_COUNT,
        validation_alias=_names("heads", "num_heads", "num_attention_heads", "n_head"),
    )
    kv_heads: int | None = Field(
        default=None,
        ge=1,
        le=MOST_COUNT,
        validation_alias=_names("kv_heads", "num_key_value_heads", "num_query_groups"),
    )
    """Key and value heads; all heads where not given."""
    intermediate: int | None = Field(
        default=None,
        ge=1,
        le=MOST_WIDTH,
        validation_alias=_names(
            "intermediate", "intermediate_size", "ffn_hidden_size", "ffn", "d_ff", "n_inner"
        ),
    )
    """Width of the MLP (of one of its two up matrices where gated)."""
    vocab: int = Field(
        default=32_000, ge=1, le=MOST_WIDTH, validation_alias=_names("vocab", "vocab_size")
    )
    max_seq_len: int | None = Field(
        default=None,
        ge=1,
        le=2**32,
        validation_alias=_names("max_seq_len", "max_position_embeddings", "n_positions"),
    )
    """Longest sequence; the size of the table where positions are learned (2048 if not given)."""
    gated: bool = Field(default=True, validation_alias=_names("gated", "swiglu", "gated_mlp"))
    tied: bool | None = Field(
        default=None, validation_alias=_names("tied", "tied_embeddings", "tie_word_embeddings")
    )
    norm: Literal["rmsnorm", "layernorm"] | None = None
    position: Literal["rotary", "learned", "alibi", "relative", "none"] | None = None
    bias: bool | None = Field(default=None, validation_alias=_names("bias", "use_bias"))
    """Biases on every matrix of attention and MLP."""
    qkv_bias: bool | None = Field(
        default=None, validation_alias=_names("qkv_bias", "add_qkv_bias", "attention_bias")
    )
    """Biases on queries, keys and values; as `bias` where not given."""
    activation: str | None = Field(
        default=None, validation_alias=_names("activation", "hidden_act", "activation_function")
    )
    parallel_residual: bool = Field(
        default=False, validation_alias=_names("parallel_residual", "use_parallel_residual")
    )
    window: int | None = Field(
        default=None, ge=1, le=2**32, validation_alias=_names("window", "sliding_window")
    )
    experts: int | None = Field(
        default=None,
        ge=1,
        le=MOST_COUNT,
        validation_alias=_names("experts", "num_experts", "num_local_experts", "n_routed_experts"),
    )
    top_k: int | None = Field(
        default=None,
        ge=1,
        le=MOST_COUNT,
        validation_alias=_names("top_k", "num_experts_per_tok", "moe_router_topk"),
    )
    """Experts that a token passes; 2 where not given."""
    moe_intermediate: int | None = Field(
        default=None,
        ge=1,
        le=MOST_WIDTH,
        validation_alias=_names("moe_intermediate", "moe_intermediate_size", "moe_ffn_hidden_size"),
    )
    """Width of one expert; `intermediate` where not given."""
    shared_intermediate: int = Field(
        default=0,
        ge=0,
        le=MOST_WIDTH,
        validation_alias=_names(
            "shared_intermediate",
            "shared_expert_intermediate_size",
            "moe_shared_expert_intermediate_size",
        ),
    )
    """Width of all shared experts together."""
    moe_every: int = Field(
        default=1,
        ge=1,
        le=10_000,
        validation_alias=_names("moe_every", "moe_layer_freq", "expert_interval"),
    )
    """Every so manyth layer has experts, counted from the first dense layers' end."""
    first_dense_layers: int = Field(
        default=0,
        ge=0,
        le=10_000,
        validation_alias=_names("first_dense_layers", "first_k_dense_replace"),
    )
    family: Literal["decoder", "encoder", "encoder_decoder"] = "decoder"
    encoder_layers: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        validation_alias=_names("encoder_layers", "num_encoder_layers"),
    )
    """Layers of the encoder beside a decoder; as many as the decoder's where not given."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    trained_in: Literal["bf16", "fp16", "fp32"] | None = None

    @field_validator("heads")
    @classmethod
    def _heads_divide_hidden(cls, heads: int, info: ValidationInfo) -> int:
        hidden = info.data.get("hidden", heads)
        if info.data.get("head_dim") is None and hidden % heads:
            raise ValueError(f"heads ({heads}) must divide hidden ({hidden}), or give head_dim")
        return heads

    @field_validator("kv_heads")
    @classmethod
    def _kv_heads_divide_heads(cls, kv_heads: int | None, info: ValidationInfo) -> int | None:
        heads = info.data.get("heads")
        if kv_heads is not None and heads is not None and heads % kv_heads:
            raise ValueError(f"kv_heads ({kv_heads}) must divide heads ({heads})")
        return kv_heads

    @field_validator("top_k")
    @classmethod
    def _as_many_as_there_are(cls, top_k: int | None, info: ValidationInfo) -> int | None:
        experts = info.data.get("experts")
        if top_k is not None and experts is not None and top_k > experts:
            raise ValueError(f"top_k ({top_k}) must be at most experts ({experts})")
        return top_k

    @field_validator("family")
    @classmethod
    def _experts_in_one_stack(cls, family: str, info: ValidationInfo) -> str:
        if family == "encoder_decoder" and info.data.get("experts") is not None:
            raise ValueError("experts are supported in a decoder or an encoder alone")
        return family

    def spec(self) -> ModelSpec:
        """The ModelSpec of this geometry."""
        layers, encoder_layers = self._layers()
        kinds, pattern = kinds_of(layers)
        position = self.position or ("rotary" if self.gated else "learned")
        tied = (not self.gated) if self.tied is None else self.tied
        positions = self.max_seq_len
        if position == "learned" and positions is None:
            positions = 2048
        table = self.vocab + (positions or 0) * (position == "learned")
        stacks = 2 if encoder_layers else 1
        return ModelSpec(
            name=self.name,
            architecture="explicit",
            family=self.family,
            hidden=self.hidden,
            vocab=self.vocab,
            max_seq_len=positions,
            kinds=kinds,
            layer_pattern=pattern,
            encoder_layers=encoder_layers,
            norm=self._norm,
            position=position,
            activation=self.activation or ("silu" if self.gated else "gelu"),
            tied_embeddings=tied,
            embedding_params=table * self.hidden,
            head_params=stacks * self._norm_width + (0 if tied else self.vocab * self.hidden),
            head_matmul_params=self.vocab * self.hidden,
            dropout=self.dropout,
            trained_in=self.trained_in,
        )

    @property
    def _norm(self) -> Literal["rmsnorm", "layernorm"]:
        return self.norm or ("rmsnorm" if self.gated else "layernorm")

    @property
    def _norm_width(self) -> int:
        return self.hidden * (1 if self._norm == "rmsnorm" else 2)

    def _layers(self) -> tuple[list[Layer], int]:
        """Every layer, encoder first, and how many of them are the encoder's."""
        causal = self.family != "encoder"
        body = [self._layer(i, causal=causal) for i in range(self.layers)]
        if self.family == "encoder":
            return body, self.layers
        if self.family == "decoder":
            return body, 0
        first = [self._layer(i, causal=False) for i in range(self.encoder_layers or self.layers)]
        body = [self._layer(i, causal=True, cross=True) for i in range(self.layers)]
        return first + body, len(first)

    def _layer(self, i: int, *, causal: bool, cross: bool = False) -> Layer:
        attention = self._attention(causal)
        norms = 3 if cross else 2
        weights = attention_weights(self.hidden, attention) + vector(norms * self._norm_width)
        other = self._attention(causal=False) if cross else None
        if other is not None:
            weights += attention_weights(self.hidden, other)
        mlp, moe = self._feed_forward(i)
        weights += mlp_weights(self.hidden, mlp) if mlp is not None else Weights()
        weights += moe_weights(self.hidden, moe) if moe is not None else Weights()
        return layer(
            weights,
            norms=norms,
            attention=attention,
            mlp=mlp,
            moe=moe,
            cross_attention=other,
            parallel_residual=self.parallel_residual,
        )

    @property
    def _bias(self) -> bool:
        return (not self.gated) if self.bias is None else self.bias

    def _attention(self, causal: bool) -> Attention:
        width = self.head_dim or self.hidden // self.heads
        return Attention(
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            head_dim=width,
            value_head_dim=width,
            qkv_bias=self._bias if self.qkv_bias is None else self.qkv_bias,
            out_bias=self._bias,
            causal=causal,
            window=self.window,
        )

    def _feed_forward(self, i: int) -> tuple[Mlp | None, Moe | None]:
        intermediate = self.intermediate or self._default_intermediate
        since = i - self.first_dense_layers
        if self.experts is None or since < 0 or (since + 1) % self.moe_every:
            return Mlp(intermediate=intermediate, gated=self.gated, bias=self._bias), None
        return None, Moe(
            experts=self.experts,
            top_k=self.top_k or min(2, self.experts),
            intermediate=self.moe_intermediate or intermediate,
            gated=self.gated,
            bias=self._bias,
            shared_intermediate=self.shared_intermediate,
        )

    @property
    def _default_intermediate(self) -> int:
        """Llama: 8/3 of hidden, to the next multiple of 256 (arXiv 2302.13971); GPT-2: 4x."""
        if self.gated:
            return -(-8 * self.hidden // 3 // 256) * 256
        return 4 * self.hidden


def explicit(**geometry: object) -> ModelSpec:
    """A ModelSpec from the fields of ModelGeometry. Raises pydantic's ValidationError."""
    return ModelGeometry.model_validate(geometry).spec()
