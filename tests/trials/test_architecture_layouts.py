"""Architectures with something of their own compute the same however they are laid out."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cost_model.plans import Plan
from cost_model.specs import Lora, ModelSpec, TrainingSpec, from_config
from tests.cost_model.specs.tiny import TINY
from tests.trials.ranks import run_ranks
from tests.trials.test_conformance import LAYOUTS
from trials.model import Build, build_model
from trials.parallel.mesh import build_mesh
from trials.result import TrialResult

Train = Callable[..., TrialResult]


def small(model_type: str, **changes: Any) -> ModelSpec:
    """The tiny config of that type, of two layers."""
    two = {"num_hidden_layers": 2, "n_layer": 2}
    sizes = {name: two.get(name, value) for name, value in TINY[model_type][0].items()}
    return from_config({"model_type": model_type, **sizes, **changes})


MODELS: dict[str, ModelSpec] = {
    "alibi": small("bloom"),
    "latent": small("deepseek_v3", first_k_dense_replace=2),
    "window": small("mistral", sliding_window=8),
    "parallel": small("gpt_neox"),
    "head-norms": small("qwen3"),
    "full-norms": small("olmo2"),
    "learned-tied": small("gpt2"),
}

CASES = [
    *(("alibi", layout) for layout in ("ring", "ulysses", "tp", "autotp")),
    *(("latent", layout) for layout in ("ring", "ulysses", "tp", "tp-sequence")),
    *(("window", layout) for layout in ("ring", "ulysses")),
    *(("parallel", layout) for layout in ("tp", "pp")),
    *(("head-norms", layout) for layout in ("tp", "tp-sequence", "autotp")),
    *(("full-norms", layout) for layout in ("tp", "tp-sequence")),
    *(("learned-tied", layout) for layout in ("ring", "ulysses", "pp")),
]


@pytest.fixture(scope="module")
def references() -> dict[str, list[float]]:
    return {}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layout"), CASES)
def test_a_layout_gives_the_losses_of_one_rank(
    name: str, layout: str, train: Train, references: dict[str, list[float]]
) -> None:
    options = {"steps": 3, "same_batch": True}
    if name not in references:
        one = train(f"one-{name}", MODELS[name], trial=options)
        assert one.outcome.kind == "ok", one.outcome.message
        references[name] = one.losses
    result = train(f"{name}-{layout}", MODELS[name], trial=options, **LAYOUTS[layout])
    assert result.outcome.kind == "ok", result.outcome.message
    assert result.findings == ()
    assert result.losses == pytest.approx(references[name], rel=1e-4)
    assert result.losses[-1] < result.losses[0]


@pytest.mark.slow
def test_norms_over_all_heads_are_refused_where_the_engine_would_not_cut_them(
    train: Train,
) -> None:
    result = train("full-norms-autotp", MODELS["full-norms"], **LAYOUTS["autotp"])
    assert result.outcome.kind == "refused"
    assert "norms over all heads" in result.outcome.message


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["zero-3", "pp", "ulysses"])
def test_adapters_alone_move_the_loss_the_same_in_every_layout(layout: str, train: Train) -> None:
    lora = Lora(rank=4)
    one = train("lora-one", lora=lora)
    cut = train(f"lora-{layout}", lora=lora, **LAYOUTS[layout])
    assert one.outcome.kind == cut.outcome.kind == "ok", cut.outcome.message
    assert cut.losses == pytest.approx(one.losses, rel=1e-4)
    assert one.losses[-1] < one.losses[0]


def gradients(rank: int, world: int, spec: ModelSpec, plan: dict[str, Any]) -> dict[str, Any]:
    """Gradients of the parameters that every rank holds whole, after one backward pass."""
    chosen = Plan(**plan)
    training = TrainingSpec(seq_len=32, global_batch=2, precision="fp32", attention="sdpa")
    model = build_model(Build.of_plan(spec, training, chosen, build_mesh(chosen, rank)), seed=1)
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(0, spec.vocab, (2, 33), generator=draw)
    model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()).backward()
    return {
        name: p.grad.tolist()
        for name, p in model.named_parameters()
        if p.grad is not None and not getattr(p, "model_parallel", False)
    }


@pytest.mark.slow
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("name", ["latent", "head-norms", "full-norms", "parallel", "alibi"])
def test_whole_parameters_have_the_whole_gradient_on_every_tensor_rank(
    name: str, sequence: bool
) -> None:
    plan = {"tp": 2, "software": "megatron_deepspeed", "sequence_parallel": sequence}
    (one,) = run_ranks(gradients, 1, MODELS[name], {})
    for cut in run_ranks(gradients, 2, MODELS[name], plan):
        assert cut
        for parameter, grad in cut.items():
            assert torch.tensor(grad).flatten().tolist() == pytest.approx(
                torch.tensor(one[parameter]).flatten().tolist(), rel=1e-3, abs=1e-6
            ), parameter
