"""The entropy of routers, its gradient's direction, and the statistics of their load."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.trials.models import decoder
from trials.entropy import (
    LoadTally,
    RouterEntropy,
    expert_load,
    mutual_information,
    router_entropy,
    shares_entropy,
)
from trials.entropy.routers import Routing, find_routers
from trials.model import Build, build_model


def test_decided_tokens_that_differ_have_full_mean_entropy_and_none_of_their_own() -> None:
    logits = 100.0 * torch.eye(4)
    assert float(router_entropy(logits, "mean")) == pytest.approx(math.log(4), abs=1e-5)
    assert float(router_entropy(logits, "token")) == pytest.approx(0.0, abs=1e-5)


def test_the_entropy_of_three_quarters_and_a_quarter_is_0_562_nats() -> None:
    # 0.75 ln(4/3) + 0.25 ln 4 = 0.2158 + 0.3466
    shares = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert float(shares_entropy(shares)) == pytest.approx(0.5623, abs=1e-4)
    assert float(shares_entropy(shares, "token")) == pytest.approx(math.log(2) / 2)


def test_a_step_along_the_bonus_balances_a_skewed_router() -> None:
    logits = torch.tensor([[3.0, 0.0, 0.0, 0.0]] * 8, requires_grad=True)
    before = router_entropy(logits)
    (-before).backward()
    assert logits.grad is not None
    after = router_entropy(logits.detach() - logits.grad)
    assert after > before


def test_only_the_mean_leaves_a_decided_token_alone_once_the_load_is_even() -> None:
    for over, moved in (("mean", False), ("token", True)):
        logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]], requires_grad=True)
        router_entropy(logits, over).backward()  # type: ignore[arg-type]
        assert logits.grad is not None
        assert bool(logits.grad.abs().max() > 1e-6) is moved


def test_every_router_of_a_model_adds_to_the_loss() -> None:
    model = build_model(Build(decoder(experts=4, layers=2)), seed=1)
    ids = torch.zeros((1, 8), dtype=torch.long)
    with RouterEntropy(0.5).watching(model) as bonus:
        model(ids, ids)
        assert len(bonus.take_load()) == 2
        assert -0.5 * math.log(4) <= float(bonus.take_loss().detach()) < 0
        with pytest.raises(ValueError, match="no router has run"):
            bonus.take_loss()


def test_a_model_without_routers_is_refused() -> None:
    with pytest.raises(ValueError, match="no router"):
        RouterEntropy(0.1).attach(build_model(Build(decoder()), seed=1))


def test_a_weight_of_zero_measures_and_adds_nothing() -> None:
    model = build_model(Build(decoder(experts=4)), seed=1)
    ids = torch.arange(8).unsqueeze(0)
    with RouterEntropy(0.0).watching(model) as bonus:
        model(ids, ids)
        assert float(bonus.take_loss()) == 0.0
        assert all(load.dropped == 0.0 for load in bonus.take_load().values())


def test_recomputed_layers_count_once_and_their_routers_get_gradients() -> None:
    model = build_model(Build(decoder(experts=4, layers=1)), seed=1)
    x = torch.randn(1, 8, 64, requires_grad=True)
    with RouterEntropy(0.5).watching(model) as bonus:
        out = checkpoint(model.layers[0], x, use_reentrant=False)
        (out.sum() * 0.0 + bonus.take_loss()).backward()
        (load,) = bonus.take_load().values()
        with pytest.raises(ValueError, match="no router has run"):
            bonus.take_loss()
    gate: Any = model.layers[0].mlp.gate  # type: ignore[union-attr]
    assert gate.weight.grad.abs().sum() > 0
    assert load.cv >= 0


def test_reentrant_checkpoints_are_named_as_the_cause_of_a_missing_gradient() -> None:
    model = build_model(Build(decoder(experts=4, layers=1)), seed=1)
    x = torch.randn(1, 8, 64, requires_grad=True)
    with RouterEntropy(0.5).watching(model) as bonus:
        checkpoint(model.layers[0], x, use_reentrant=True)
        with pytest.raises(ValueError, match="use_reentrant=False"):
            bonus.take_loss()


def test_deepspeeds_layer_tells_dropped_tokens_and_passes_gradients_to_its_gate() -> None:
    model = build_model(Build(decoder(experts=4, layers=1), capacity_factor=1.0), seed=1)
    ids = torch.zeros((2, 32), dtype=torch.long)  # every token wants the same two experts
    with RouterEntropy(0.5).watching(model) as bonus:
        loss = model(ids, ids)
        (0.0 * loss + bonus.take_loss()).backward()
        (load,) = bonus.take_load().values()
    # 2 of 4 experts are asked for by all 64 tokens: twice the mean; half fits their 32 slots
    assert load.max_over_mean == pytest.approx(2.0, abs=0.1)
    assert load.dropped == pytest.approx(0.5, abs=0.05)
    gate: Any = model.layers[0].mlp.moe.deepspeed_moe.gate  # type: ignore[union-attr]
    assert gate.wg.weight.grad.abs().sum() > 0


@pytest.fixture(scope="module")
def hugging_face() -> Any:
    return pytest.importorskip("transformers")


SMALL = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OF_TRANSFORMERS = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
    "deepseek_v3": {
        **{"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
        **{"first_k_dense_replace": 0, "moe_intermediate_size": 8, "q_lora_rank": 8},
        **{"kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 8},
    },
    "llama4_text": {
        **{"num_local_experts": 4, "num_experts_per_tok": 1, "head_dim": 8},
        **{"interleave_moe_layer_step": 1, "intermediate_size_mlp": 16},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_TRANSFORMERS)
def test_routers_of_transformers_are_found_and_pushed(kind: str, hugging_face: Any) -> None:
    config = hugging_face.AutoConfig.for_model(kind, **SMALL | OF_TRANSFORMERS[kind])
    torch.manual_seed(1)
    model = hugging_face.AutoModelForCausalLM.from_config(config).train()
    ids = torch.arange(3, 19).unsqueeze(0)
    with RouterEntropy(1.0).watching(model) as bonus:
        model(input_ids=ids, labels=ids, use_cache=False)
        term = bonus.take_loss()
        (load,) = bonus.take_load().values()
    term.backward()
    assert -math.log(4) <= float(term.detach()) < 0
    k = OF_TRANSFORMERS[kind]["num_experts_per_tok"]
    assert 1.0 <= load.max_over_mean <= 4 / k
    ((router, _),) = find_routers(model).values()
    assert router.weight.grad.abs().sum() > 0  # type: ignore[union-attr]


def test_the_users_own_router_is_read_by_the_users_own_reader() -> None:
    class Oracle(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    def read(router: nn.Module, args: tuple[Any, ...], output: Any) -> Routing:
        return Routing(output.softmax(-1), output.argmax(-1, keepdim=True))

    model = nn.Sequential(Oracle())
    with RouterEntropy(1.0, readers={Oracle: read}).watching(model) as bonus:
        model(torch.zeros(3, 2, requires_grad=True))
        assert float(bonus.take_loss().detach()) == pytest.approx(-math.log(2))


def test_load_of_one_overloaded_expert() -> None:
    found = expert_load(torch.tensor([[0], [0], [0], [1]]), 4, capacity=2)
    assert found.max_over_mean == 3.0
    assert found.dropped == 0.25
    # loads 3, 1, 0, 0: mean 1, variance 1.5
    assert found.cv == pytest.approx(math.sqrt(1.5))


def test_experts_that_follow_the_class_share_all_its_information() -> None:
    assert mutual_information(torch.tensor([[5, 0], [0, 5]])) == pytest.approx(math.log(2))
    assert mutual_information(torch.tensor([[3, 3], [2, 2]])) == pytest.approx(0.0, abs=1e-12)


def test_a_tally_knows_specialisation_and_dropped_routes() -> None:
    tally = LoadTally(experts=2, classes=2)
    shares = torch.full((4, 2), 0.5)
    index = torch.tensor([[0], [0], [1], [-1]])
    tally.add(Routing(shares, index, torch.tensor([2, 2])), torch.tensor([0, 0, 1, 1]))
    found = tally.take()
    assert found.dropped == 0.25
    assert found.cv == 0.0
    assert found.specialisation == pytest.approx(1.0)
