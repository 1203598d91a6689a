import pytest

from cost_model.catalogue import model
from cost_model.plans import Plan
from cost_model.specs import TrainingSpec
from tests.trials.campaign.machine import Machine, many_gpus
from trials.campaign import CampaignSettings, begin, propose, run
from trials.campaign.proxy import at_depth, depths, shrink, small

TRAINING = TrainingSpec(seq_len=4096, global_batch=64)


def test_a_proxy_keeps_what_one_rank_does_and_drops_ranks_and_stages() -> None:
    llama = model("llama-2-70b")
    plan = Plan(
        software="megatron_deepspeed",  # type: ignore[arg-type]
        tp=8,
        pp=8,
        dp=4,
        zero_stage=1,
        micro_batch=1,
        grad_accum=16,
        nodes=32,
    )
    proxy = shrink(plan, llama, ranks=8, per_node=8)
    assert proxy is not None
    assert (proxy.plan.tp, proxy.plan.pp, proxy.plan.dp) == (8, 1, 1)
    assert proxy.layers == 10  # 80 layers over 8 stages
    assert proxy.plan.micro_batch == 1
    assert proxy.plan.nodes == 1


def test_tensor_slices_leave_the_weights_of_a_rank_as_they_are() -> None:
    llama = model("llama-2-7b")
    proxy = shrink(Plan(tp=4, dp=2, micro_batch=2, grad_accum=4), llama, ranks=2, per_node=8)
    assert proxy is not None
    assert proxy.tensor_slices == 2
    made = small(llama, TRAINING, proxy).model
    kind, whole = made.kinds[0], llama.kinds[0]
    assert kind.attention is not None
    assert kind.attention.heads == 16  # of 32, over two ranks instead of four: eight a rank
    assert kind.tp_sharded_params * 2 == whole.tp_sharded_params
    assert made.hidden == llama.hidden


def test_heads_that_do_not_come_out_even_have_no_proxy() -> None:
    gqa = model("llama-3.1-8b")  # 8 key-value heads
    assert shrink(Plan(tp=32), gqa, ranks=2, per_node=8) is None


def test_experts_are_sliced_so_that_a_rank_holds_as_many() -> None:
    mixtral = model("mixtral-8x7b")
    proxy = shrink(Plan(dp=8, ep=4, micro_batch=1), mixtral, ranks=2, per_node=8)
    assert proxy is not None
    made = small(mixtral, TRAINING, proxy).model
    moe = made.kinds[0].moe
    assert moe is not None
    assert (proxy.plan.ep, moe.experts) == (2, 4)  # two experts a rank, as 8 over 4
    assert made.kinds[0].expert_params * 2 == mixtral.kinds[0].expert_params


def test_two_depths_are_run_and_what_does_not_fit_is_made_shallower() -> None:
    llama = model("llama-2-13b")
    proxy = shrink(Plan(dp=64, zero_stage=3), llama, ranks=8, per_node=8)
    assert proxy is not None
    assert [p.layers for p in depths(proxy, lambda p: True)] == [40, 20]
    assert [p.layers for p in depths(proxy, lambda p: p.layers <= 12)] == [10, 5]
    assert depths(proxy, lambda p: False) == ()


def test_a_shallower_proxy_recomputes_no_more_layers_than_it_has() -> None:
    llama = model("llama-2-13b")
    plan = Plan(dp=16, recompute="full", recompute_layers=30)  # type: ignore[arg-type]
    proxy = shrink(plan, llama, ranks=8, per_node=8)
    assert proxy is not None
    assert at_depth(proxy, 10).plan.recompute_layers == 10


def test_plans_of_more_ranks_than_there_are_run_as_proxies_in_two_depths() -> None:
    resolved = many_gpus()
    machine = Machine(resolved, {"gemm": -0.25, "memory": -0.1}, ranks=8)
    settings = CampaignSettings(max_trials=4, confidence=1.0)
    state = run(resolved, settings, "c", machine)
    assert all(t.proxy is not None for t in state.trials if t.plan.world_size > 8)
    first, second = state.trials[0], state.trials[1]
    assert first.plan == second.plan
    assert first.proxy is not None
    assert second.proxy is not None
    assert second.proxy.layers == first.proxy.layers // 2
    assert "stands for 32 ranks on 8" in first.note
    assert any("proxies" in note for note in state.notes)


def test_proxies_bring_the_full_plans_prediction_near_the_truth() -> None:
    resolved = many_gpus()
    machine = Machine(resolved, {"gemm": -0.25, "memory": -0.1}, ranks=8)
    state = run(resolved, CampaignSettings(max_trials=4, confidence=1.0), "c", machine)
    assert state.best is not None
    truth = machine.seconds(resolved.model, resolved.training, state.best)
    shipped = begin(resolved, CampaignSettings(), "s", ranks=8)
    before = next(r.seconds for r in shipped.ranking if r.plan == shipped.best)
    after = next(r.seconds for r in state.ranking if r.plan == state.best)
    assert after == pytest.approx(truth, rel=0.05)
    assert abs(before / truth - 1) > 0.1


def test_without_proxies_larger_plans_are_left_and_said_so() -> None:
    resolved = many_gpus()
    state = begin(resolved, CampaignSettings(proxies=False), "c", ranks=8)
    for file in propose(resolved, state):
        assert file.plan.world_size <= 8
    assert any("need more than the 8 ranks" in note for note in state.notes)


def test_it_is_not_confident_of_a_plan_that_not_even_a_proxy_tried() -> None:
    resolved = many_gpus()
    machine = Machine(resolved, {"gemm": -0.25, "network_bandwidth": -0.5}, ranks=8)
    settings = CampaignSettings(max_trials=12, confidence=0.5, tolerance=0.2)
    state = run(resolved, settings, "c", machine)
    assert state.ended == "confident"
    assert state.best in [t.plan for t in state.trials]


def test_where_nothing_can_be_tried_it_ends_at_once_and_says_why() -> None:
    settings = CampaignSettings(proxies=False)
    state = begin(many_gpus(), settings, "c", ranks=2, known=None)
    assert state.ended == "no trial can be run"
    assert "the executor has 2" in state.notes[-1]
    assert propose(many_gpus(), state) == ()
