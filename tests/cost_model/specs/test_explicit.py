"""Models from their numbers alone."""

import pytest
from pydantic import ValidationError

from cost_model.catalogue import model
from cost_model.specs import ModelGeometry, explicit


def test_hidden_layers_and_heads_make_a_llama() -> None:
    spec = explicit(hidden=4096, layers=32, heads=32)
    reference = model("llama-2-7b")
    assert spec.params == reference.params
    assert spec.kinds == reference.kinds
    assert spec.head_matmul_params == reference.head_matmul_params


def test_an_ungated_model_is_a_gpt_2() -> None:
    spec = explicit(hidden=1600, layers=48, heads=25, vocab=50257, max_seq_len=1024, gated=False)
    reference = model("gpt2-xl")
    assert spec.params == reference.params == 1_557_611_200
    assert spec.kinds == reference.kinds
    assert (spec.norm, spec.position, spec.activation) == ("layernorm", "learned", "gelu")
    assert spec.tied_embeddings


def test_experts_make_a_mixtral() -> None:
    spec = explicit(
        hidden=4096, layers=32, heads=32, kv_heads=8, intermediate=14336, experts=8, top_k=2
    )
    assert spec.params == model("mixtral-8x7b").params
    assert spec.is_moe


def test_the_names_of_hugging_face_and_megatron_are_understood() -> None:
    here = explicit(hidden=512, layers=2, heads=8, kv_heads=2, intermediate=1024, vocab=1000)
    there = explicit(
        hidden_size=512,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        intermediate_size=1024,
        vocab_size=1000,
    )
    megatron = explicit(
        hidden_size=512,
        num_layers=2,
        num_attention_heads=8,
        num_query_groups=2,
        ffn_hidden_size=1024,
        vocab_size=1000,
    )
    assert here == there == megatron


def test_experts_may_stand_in_some_layers_only() -> None:
    every_other = explicit(hidden=64, layers=4, heads=4, experts=4, moe_every=2)
    assert [every_other.kinds[k].moe is not None for k in every_other.layer_pattern] == [
        *(False, True, False, True)
    ]
    dense_first = explicit(hidden=64, layers=4, heads=4, experts=4, first_dense_layers=1)
    assert [dense_first.kinds[k].moe is not None for k in dense_first.layer_pattern] == [
        *(False, True, True, True)
    ]


def test_an_encoder_sees_both_ways() -> None:
    spec = explicit(hidden=64, layers=2, heads=4, gated=False, family="encoder")
    assert spec.encoder_layers == 2
    assert all(kind.attention and not kind.attention.causal for kind in spec.kinds)


def test_an_encoder_decoder_has_cross_attention_in_its_decoder() -> None:
    spec = explicit(
        hidden=1024,
        layers=24,
        heads=32,
        head_dim=128,
        intermediate=16384,
        vocab=32128,
        gated=False,
        bias=False,
        norm="rmsnorm",
        position="relative",
        family="encoder_decoder",
    )
    tables = 2 * 32 * 32  # T5's relative positions, which explicit geometry does not have
    assert spec.params == model("t5-3b").params - tables
    assert spec.encoder_layers == 24


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"heads": 7}, "heads", "heads (7) must divide hidden (64)"),
        ({"kv_heads": 3}, "kv_heads", "kv_heads (3) must divide heads (4)"),
        ({"experts": 2, "top_k": 3}, "top_k", "top_k (3) must be at most experts (2)"),
        ({"hidden": 0}, "hidden", "greater than or equal to 1"),
        ({"layers": 10**6}, "layers", "less than or equal to 10000"),
        ({"colour": 1}, "colour", "Extra inputs are not permitted"),
        ({"norm": "batch"}, "norm", "'rmsnorm' or 'layernorm'"),
    ],
)
def test_impossible_geometry_is_refused_with_the_field(
    change: dict[str, object], field: str, message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        explicit(**({"hidden": 64, "layers": 2, "heads": 4} | change))
    (error,) = caught.value.errors()
    assert message in error["msg"]
    assert error["loc"] == (field,)


def test_geometry_survives_a_round_trip_through_json() -> None:
    geometry = ModelGeometry.model_validate({"d_model": 64, "n_layer": 2, "n_head": 4})
    assert ModelGeometry.model_validate_json(geometry.model_dump_json()) == geometry
