"""Decoders with multi-head latent attention: DeepSeek-V2 and what followed it."""

from collections.abc import Callable

from cost_model.specs.architectures import windows
from cost_model.specs.architectures.fields import Fields, pointer_to
from cost_model.specs.architectures.grouped import Experts, ExpertsReader
from cost_model.specs.architectures.mixture import routed_and_shared
from cost_model.specs.architectures.stack import Stack, architecture
from cost_model.specs.architectures.weights import (
    NOTHING,
    Weights,
    attention_weights,
    layer,
    mlp_weights,
    moe_weights,
    vector,
    whole,
)
from cost_model.specs.errors import SpecError
from cost_model.specs.model import Attention, LatentAttention, Layer, Mlp

IndexerReader = Callable[[Fields, int], Weights]


def latent_attention(c: Fields) -> Attention:
    """Latent attention from DeepSeek's names (arXiv 2405.04434, section 2.1)."""
    heads = c.integer("num_attention_heads")
    nope = c.integer("qk_nope_head_dim")
    rope = c.integer("qk_rope_head_dim")
    bias = c.boolean("attention_bias")
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rope,
        value_head_dim=c.integer("v_head_dim", null=c.integer("hidden_size") // heads or 1),
        qkv_bias=bias,
        out_bias=bias,
        latent=LatentAttention(
            q_lora_rank=c.optional_integer("q_lora_rank"),
            kv_lora_rank=c.integer("kv_lora_rank"),
            nope_head_dim=nope,
            rope_head_dim=rope,
        ),
    )


def _latent_layer(
    c: Fields,
    hidden: int,
    attention: Attention,
    experts: Experts | None,
    index: Weights,
    mlp_bias: bool,
) -> Layer:
    weights = attention_weights(hidden, attention) + vector(2 * hidden) + index
    if experts is not None:
        weights += moe_weights(hidden, experts.moe, shared_bias=mlp_bias)
        return layer(weights, norms=2, attention=attention, moe=experts.moe)
    mlp = Mlp(intermediate=c.integer("intermediate_size"), gated=True, bias=mlp_bias)
    return layer(weights + mlp_weights(hidden, mlp), norms=2, attention=attention, mlp=mlp)


def latent_decoder(
    c: Fields,
    *,
    experts: ExpertsReader | None = None,
    mlp_bias: bool = False,
    indexer: IndexerReader | None = None,
    notes: tuple[str, ...] = (),
) -> Stack:
    """A decoder of pre-norm layers with latent attention."""
    hidden = c.integer("hidden_size")
    vocab = c.integer("vocab_size")
    attention = latent_attention(c)
    made: dict[tuple[Weights, Experts | None], Layer] = {}
    layers = []
    for i in range(c.layers()):
        index = indexer(c, i) if indexer is not None else NOTHING
        chosen = experts(c, i) if experts is not None else None
        if (index, chosen) not in made:
            made[index, chosen] = _latent_layer(c, hidden, attention, chosen, index, mlp_bias)
        layers.append(made[index, chosen])
    return Stack(
        hidden=hidden,
        vocab=vocab,
        layers=layers,
        embedding_params=vocab * hidden,
        final_params=hidden,
        tied=c.boolean("tie_word_embeddings"),
        max_seq_len=c.optional_integer("max_position_embeddings"),
        activation=c.text("hidden_act"),
        notes=notes,
    )


@architecture("deepseek_v2", "DeepseekV2ForCausalLM")
def deepseek_v2(c: Fields) -> Stack:
    """DeepSeek-V2 (arXiv 2405.04434)."""
    return latent_decoder(c, experts=routed_and_shared, mlp_bias=c.boolean("mlp_bias"))


@architecture("deepseek_v3", "DeepseekV3ForCausalLM")
def deepseek_v3(c: Fields) -> Stack:
    """DeepSeek-V3 (arXiv 2412.19437), Kimi K2."""
    return latent_decoder(c, experts=routed_and_shared)


for _model_type, _class in (
    ("sarvam_mla", "DeepseekV3ForCausalLM"),
    ("mistral4", "Mistral4ForCausalLM"),
):
    architecture(_model_type, _class)(deepseek_v3)


@architecture("glm4_moe_lite", "Glm4MoeLiteForCausalLM")
def glm4_moe_lite(c: Fields) -> Stack:
    """GLM-4.7-Flash; without a list of kinds the first layer is dense."""

    def experts(c: Fields, i: int) -> Experts | None:
        if not c.given("mlp_layer_types") and i == 0:
            return None
        return routed_and_shared(c, i)

    return latent_decoder(c, experts=experts)


@architecture("minicpm3", "MiniCPM3ForCausalLM")
def minicpm3(c: Fields) -> Stack:
    """MiniCPM3 4B."""
    return latent_decoder(c, mlp_bias=c.boolean("mlp_bias"))


@architecture("youtu", "YoutuForCausalLM")
def youtu(c: Fields) -> Stack:
    """Youtu-LLM."""
    return latent_decoder(c)


_SPARSE = (
    "the sparse attention's token index is counted in parameters; "
    "its time is that of attention over the whole sequence, an upper bound"
)


def _index_weights(c: Fields) -> Weights:
    """The lightning indexer of DeepSeek sparse attention (DeepSeek-V3.2 report, section 2.1)."""
    hidden = c.integer("hidden_size")
    rank = c.integer("q_lora_rank")
    heads = c.integer("index_n_heads")
    width = c.integer("index_head_dim")
    return (
        whole(rank, heads * width) + whole(hidden, width) + vector(2 * width) + whole(hidden, heads)
    )


@architecture("deepseek_v32", "DeepseekV32ForCausalLM")
def deepseek_v32(c: Fields) -> Stack:
    """DeepSeek-V3.2: V3 with an index that picks the tokens to attend to."""
    return latent_decoder(
        c,
        experts=routed_and_shared,
        mlp_bias=c.boolean("mlp_bias"),
        indexer=lambda c, _: _index_weights(c),
        notes=(_SPARSE,),
    )


@architecture("glm_moe_dsa", "GlmMoeDsaForCausalLM")
def glm_moe_dsa(c: Fields) -> Stack:
    """GLM-5: DeepSeek-V3.2's shape, where a layer may reuse the index of an earlier one."""
    own = _own_index(c, c.layers())
    return latent_decoder(
        c,
        experts=routed_and_shared,
        mlp_bias=c.boolean("mlp_bias"),
        indexer=lambda c, i: _index_weights(c) if own[i] else NOTHING,
        notes=(_SPARSE,),
    )


def _own_index(c: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have an index: by list, by pattern of F and S, or by period and offset."""
    kinds = windows.layer_types(c, layers, ("full", "shared"), "indexer_types")
    if kinds is not None:
        return tuple(kind == "full" for kind in kinds)
    pattern = c.value("index_topk_pattern")
    if pattern is not None:
        if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - set("FS"):
            wanted = f"must be {layers} letters, F for a layer with an index, S for one that shares"
            raise SpecError(pointer_to(c.pointer, "index_topk_pattern"), pattern, wanted)
        return tuple(letter == "F" for letter in pattern)
    period = c.integer("index_topk_freq", null=1)
    offset = c.integer("index_skip_topk_offset", null=2, minimum=0)
    return tuple(max(i - offset + 1, 0) % period == 0 for i in range(layers))
