"""Activations against the formulas and the figures of arXiv 2205.05198."""

import pytest

from cost_model.memory import detail
from cost_model.plans import Plan
from cost_model.specs import TrainingSpec
from tests.cost_model.memory.samples import GIB, dgx, gpt

S, B, H, A = 2048, 4, 6144, 64
DROPOUT = TrainingSpec(
    seq_len=S,
    global_batch=B,
    precision="fp16",
    attention="fused_softmax",
    dropout=0.1,
    fused_norm=True,
)


def layer_bytes(plan: Plan, training: TrainingSpec = DROPOUT) -> float:
    """What one more layer adds to the activations of a Megatron GPT."""

    def activations(layers: int) -> float:
        found = detail(gpt(H, layers, A), dgx(), training, plan)
        return next(m for m in found.moments if m.moment == "loss").categories["activations"]

    return (activations(9) - activations(1)) / 8


def megatron(**knobs: object) -> Plan:
    return Plan(software="megatron", micro_batch=B, **knobs)


def test_a_layer_without_recompute_keeps_sbh_34_plus_5as_over_h() -> None:
    assert layer_bytes(megatron()) == pytest.approx(S * B * H * (34 + 5 * A * S / H))


@pytest.mark.parametrize("t", [2, 4, 8])
def test_tensor_parallelism_leaves_10_plus_24_over_t(t: int) -> None:
    expected = S * B * H * (10 + 24 / t + 5 * A * S / (H * t))
    assert layer_bytes(megatron(tp=t)) == pytest.approx(expected)


def test_sequence_parallelism_divides_everything_by_t() -> None:
    expected = S * B * H / 8 * (34 + 5 * A * S / H)
    assert layer_bytes(megatron(tp=8, sequence_parallel=True)) == pytest.approx(expected)


def test_selective_recompute_drops_the_attention_term() -> None:
    plan = megatron(tp=8, sequence_parallel=True, recompute="selective")
    assert layer_bytes(plan) == pytest.approx(S * B * H * 34 / 8)


def test_full_recompute_keeps_a_layers_input() -> None:
    assert layer_bytes(megatron(tp=8, recompute="full")) == pytest.approx(2 * S * B * H)


def test_partitioned_checkpoints_are_split_over_tensor_parallel_ranks() -> None:
    plan = megatron(tp=8, recompute="full", partition_activations=True)
    assert layer_bytes(plan) == pytest.approx(2 * S * B * H / 8)


def test_flash_attention_keeps_34sbh_and_its_softmax_statistics() -> None:
    training = DROPOUT.model_copy(update={"attention": "flash2"})
    assert layer_bytes(megatron(), training) == pytest.approx(S * B * (34 * H + 4 * A))


@pytest.mark.parametrize("shard", [{"cp": 4}, {"sp": 4}])
def test_context_parallelism_divides_the_tokens(shard: dict[str, int]) -> None:
    training = DROPOUT.model_copy(update={"attention": "flash2"})
    whole, split = megatron(), megatron(**shard)
    assert layer_bytes(split, training) == pytest.approx(layer_bytes(whole, training) / 4)


# Figure 1: activations of the first stage in GiB, without recompute and with selective recompute
# and sequence parallelism.
FIGURE_1 = [
    (gpt(6144, 48, 64), 1, 1, 4, 59.25, 9.5625),
    (gpt(12288, 96, 96), 8, 3, 1, 66.84375, 12.3515625),
]


@pytest.mark.parametrize(("model", "pp", "vpp", "micro", "none", "selective"), FIGURE_1)
def test_figure_1_is_reproduced(
    model: object, pp: int, vpp: int, micro: int, none: float, selective: float
) -> None:
    plan = megatron(tp=8, pp=pp, vpp=vpp, grad_accum=64).model_copy(update={"micro_batch": micro})
    lean = plan.model_copy(update={"sequence_parallel": True, "recompute": 1})
    for candidate, expected in ((plan, none), (lean, selective)):
        found = detail(model, dgx(8), DROPOUT, candidate)
        first = found.phase(0, "forward_backward").categories["activations"] / GIB
        assert first == pytest.approx(expected, rel=0.02)


def test_eager_scores_take_the_allocation_that_killed_a_run() -> None:
    """ColossalAI #4537: 16 x 32 x 4096^2 x 4 bytes = 32.0 GiB of fp32 scores in one layer."""
    model = gpt(4096, 1, 32)
    training = TrainingSpec(seq_len=4096, global_batch=16, precision="fp32", attention="eager")
    lean = training.model_copy(update={"attention": "flash2"})
    plan = Plan(micro_batch=16)
    details = (detail(model, dgx(), t, plan) for t in (training, lean))
    scores, flash = (
        next(m.categories["activations"] for m in found.moments if m.moment == "layer") / GIB
        for found in details
    )
    statistics = 16 * 4096 * 32 * 4 / GIB
    assert scores - flash + statistics == pytest.approx(32.0)


def test_rows_of_a_gated_layer_are_counted_tensor_by_tensor() -> None:
    """Llama without dropout: per token 2 norms, 2 inputs, q k v out, gate up product: 16 bits."""
    from cost_model.catalogue import model

    llama = model("llama-3.1-8b")
    training = TrainingSpec(seq_len=8192, global_batch=1, attention="flash2", fused_norm=True)
    found = detail(llama, dgx(), training, Plan(software="megatron"))
    kept = next(m for m in found.moments if m.moment == "loss").categories["activations"]
    attention = 2 * (4096 + 1024 + 1024 + 4096) + 4 * 32
    per_token = 4 * 2 * 4096 + attention + 2 * 3 * 14336
    head = 2 * 2 * 4096
    assert kept == pytest.approx(8192 * (32 * per_token + head))


def test_key_value_heads_are_not_split_below_one() -> None:
    """8 key-value heads on 16 ranks: each rank holds a whole one, so q, out and MLP halve alone."""
    from cost_model.catalogue import model

    training = TrainingSpec(seq_len=4096, global_batch=1, attention="flash2", fused_norm=True)
    kept = {}
    for tp in (8, 16):
        found = detail(model("llama-3.1-8b"), dgx(4), training, Plan(software="megatron", tp=tp))
        loss = next(m for m in found.moments if m.moment == "loss")
        kept[tp] = loss.categories["activations"]
    halved = 2 * (4096 + 4096) + 4 * 32 + 2 * 3 * 14336
    assert kept[8] - kept[16] == pytest.approx(4096 * 32 * halved / 16)


def test_adapters_on_attention_alone_let_the_mlps_inputs_go() -> None:
    """Frozen gate, up and down keep no input: one hidden and one intermediate tensor fewer."""
    from cost_model.catalogue import model

    kept = {}
    for targets in ("attention", "all_linear"):
        training = TrainingSpec(
            seq_len=4096, global_batch=1, attention="flash2", lora={"rank": 8, "targets": targets}
        )
        found = detail(model("llama-2-7b"), dgx(), training, Plan(software="fsdp"))
        loss = next(m for m in found.moments if m.moment == "loss")
        kept[targets] = loss.categories["activations"]
    fewer = 4096 * 32 * 2 * (4096 + 11008)
    assert kept["all_linear"] - kept["attention"] == pytest.approx(fewer)
