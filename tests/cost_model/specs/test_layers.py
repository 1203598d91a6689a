"""What a layer says of its shape, beside how many parameters it has."""

import pytest

from cost_model.catalogue import model, model_names
from cost_model.specs import Layer, ModelSpec, from_config
from tests.cost_model.specs.meta import meta_model
from tests.cost_model.specs.test_counts import variants
from tests.cost_model.specs.tiny import TINY


def by_layer(spec: ModelSpec) -> list[Layer]:
    return [spec.kinds[k] for k in spec.layer_pattern]


def all_specs() -> list[ModelSpec]:
    tiny = [from_config(config) for name in TINY for config in variants(name, 2)]
    return tiny + [model(name) for name in model_names()]


def test_categories_of_parameters_add_up_and_none_is_negative() -> None:
    for spec in all_specs():
        total = spec.embedding_params + spec.head_params
        for layer in by_layer(spec):
            parts = (layer.tp_sharded_params, layer.replicated_params, layer.expert_params)
            assert min(parts) >= 0, spec.name
            assert layer.params == sum(parts)
            total += layer.params
        assert total == spec.params


def shapes(layer: Layer, hidden: int) -> int:
    """Matrix weights of a layer, from its described shape alone."""
    total = 0
    for a in (layer.attention, layer.cross_attention):
        if a is None:
            continue
        if a.latent is None:
            total += hidden * a.head_dim * (a.heads + a.kv_heads)
            total += hidden * a.value_head_dim * (a.heads + a.kv_heads)
            continue
        rank = a.latent.q_lora_rank
        queries = a.heads * a.head_dim
        total += hidden * queries if rank is None else rank * (hidden + queries)
        total += hidden * (a.latent.kv_lora_rank + a.latent.rope_head_dim)
        total += a.latent.kv_lora_rank * a.heads * (a.latent.nope_head_dim + a.value_head_dim)
        total += a.heads * a.value_head_dim * hidden
    if layer.mlp is not None:
        total += hidden * layer.mlp.intermediate * (3 if layer.mlp.gated else 2)
    if layer.moe is not None:
        total += hidden * layer.moe.experts
        total += hidden * layer.moe.shared_intermediate * (3 if layer.moe.gated else 2)
    return total


EXTRA_MATRICES = {
    "DeepseekV32ForCausalLM",  # the index that picks tokens
    "GlmMoeDsaForCausalLM",
    "AfmoeForCausalLM",  # a gate on attention's output
    "Qwen2MoeForCausalLM",  # a gate on the shared expert
    "Gemma3nForCausalLM",  # AltUp, LAuReL
    "Gemma4ForCausalLM",  # keys that are values, layers without keys, embeddings by layer
}


def test_matrix_weights_follow_from_the_described_shape() -> None:
    for spec in all_specs():
        if spec.architecture in EXTRA_MATRICES:
            continue
        for layer in by_layer(spec):
            assert layer.matmul_params == shapes(layer, spec.hidden), spec.architecture


def test_what_is_not_a_matrix_is_small() -> None:
    for name in model_names():
        spec = model(name)
        for layer in spec.kinds:
            dense = layer.tp_sharded_params + layer.replicated_params
            if dense:  # ALBERT's later layers own nothing
                assert layer.matmul_params <= dense <= 1.01 * layer.matmul_params, name


def test_expert_weights_follow_from_the_described_experts() -> None:
    for name in model_names():
        for layer in model(name).kinds:
            moe = layer.moe
            if moe is None:
                assert layer.expert_params == 0
                continue
            matrices = 3 if moe.gated else 2
            weights = moe.experts * matrices * model(name).hidden * moe.intermediate
            assert weights <= layer.expert_params <= 1.01 * weights, name


def test_the_count_of_norms_is_that_of_the_modules() -> None:
    """Norms over the hidden size, by the classes' own modules."""
    for name in ("llama", "gemma2", "olmo2", "glm4", "phi", "cohere", "mixtral", "bloom"):
        config = variants(name, 1)[0]
        spec = from_config(config)
        module = meta_model(config, spec.architecture)
        hidden = spec.hidden
        own = {
            owner.rsplit(".", 1)[0]
            for owner, p in module.named_parameters()
            if ".0." in owner and tuple(p.shape) == (hidden,) and "norm" in owner.lower()
            if "q_norm" not in owner
        }
        assert spec.kinds[0].norms == len(own), (name, own)


def test_gpt_oss_alternates_window_and_whole_sequence() -> None:
    windows = [
        layer.attention.window for layer in by_layer(model("gpt-oss-20b")) if layer.attention
    ]
    assert windows == [128, None] * 12


def test_gemma_2_alternates_and_gemma_3_has_one_whole_layer_in_six() -> None:
    second = [layer.attention.window for layer in by_layer(model("gemma-2-9b")) if layer.attention]
    third = [layer.attention.window for layer in by_layer(model("gemma-3-4b")) if layer.attention]
    assert second == [4096, None] * 21
    assert third[:12] == ([1024] * 5 + [None]) * 2


def test_mistral_slides_everywhere_and_qwen_nowhere_unless_told() -> None:
    assert {layer.attention.window for layer in model("mistral-7b").kinds if layer.attention} == {
        4096
    }
    assert {layer.attention.window for layer in model("qwen2.5-7b").kinds if layer.attention} == {
        None
    }


def test_deepseek_v3_has_three_dense_layers_first() -> None:
    spec = model("deepseek-v3")
    assert spec.layer_pattern == (0,) * 3 + (1,) * 58
    dense, sparse = spec.kinds
    assert dense.mlp is not None
    assert dense.mlp.intermediate == 18432
    assert sparse.moe is not None
    assert (sparse.moe.experts, sparse.moe.top_k, sparse.moe.shared_intermediate) == (256, 8, 2048)
    assert sparse.attention is not None
    assert sparse.attention.latent is not None
    assert (sparse.attention.head_dim, sparse.attention.value_head_dim) == (192, 128)


def test_llama_4_maverick_has_experts_in_every_other_layer() -> None:
    spec = model("llama-4-maverick")
    assert [layer.moe is not None for layer in by_layer(spec)] == [False, True] * 24


@pytest.mark.parametrize(
    ("name", "parallel"),
    [
        ("gpt-j-6b", True),
        ("gpt-neox-20b", True),
        ("falcon-7b", True),
        ("command-r", True),
        ("llama-2-7b", False),
        ("bloom-176b", False),
    ],
)
def test_parallel_residuals_are_told(name: str, parallel: bool) -> None:
    assert {layer.parallel_residual for layer in model(name).kinds} == {parallel}


def test_bert_sees_both_ways_and_has_no_decoder() -> None:
    spec = model("bert-large")
    assert spec.family == "encoder"
    assert spec.encoder_layers == 24
    assert spec.params == 335_174_458
    assert all(layer.attention and not layer.attention.causal for layer in spec.kinds)
    assert spec.head_matmul_params == 1024 * 30522 + 1024 * 1024


def test_t5_has_its_encoder_first_and_cross_attention_in_its_decoder() -> None:
    spec = model("t5-3b")
    assert spec.params == 2_851_598_336
    assert spec.encoder_layers == 24
    assert spec.layers == 48
    crossing = [layer.cross_attention is not None for layer in by_layer(spec)]
    assert crossing == [False] * 24 + [True] * 24
    causal = [layer.attention.causal for layer in by_layer(spec) if layer.attention]
    assert causal == [False] * 24 + [True] * 24


@pytest.mark.parametrize(
    ("name", "longest", "position"),
    [
        ("gpt2", 1024, "learned"),
        ("llama-2-7b", 4096, "rotary"),
        ("bloom-176b", None, "alibi"),
        ("t5-3b", None, "relative"),
        ("roberta-base", 512, "learned"),
        ("opt-13b", 2048, "learned"),
    ],
)
def test_the_longest_sequence_is_that_of_the_position_scheme(
    name: str, longest: int | None, position: str
) -> None:
    assert model(name).max_seq_len == longest
    assert model(name).position == position


def test_a_gated_mlp_and_a_plain_one_are_told_apart() -> None:
    gated = {name: [k.mlp.gated for k in model(name).kinds if k.mlp] for name in model_names()}
    assert set(gated["llama-2-7b"]) == {True}
    assert set(gated["flan-t5-xl"]) == {True}
    for name in ("gpt2", "opt-13b", "gpt-neox-20b", "falcon-7b", "t5-3b", "bert-large"):
        assert set(gated[name]) == {False}
