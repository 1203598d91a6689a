from cost_model.plans import Plan
from planner.explain import around
from planner.rules import violations
from tests.planner.requests import resolve

RESOLVED = resolve("llama-2-70b", nodes=4, seq_len=4096, global_batch=256)
MINE = Plan(nodes=4, dp=32, zero_stage=3, grad_accum=8, recompute="full")


def test_every_improvement_is_legal_faster_and_keeps_the_gpu_count() -> None:
    answer = around(RESOLVED, MINE)
    assert answer.violations == ()
    assert answer.improvements
    for one in answer.improvements:
        assert violations(RESOLVED.world, one.candidate.plan) == []
        assert one.candidate.gpus == 32
        assert one.candidate.step.seconds < answer.candidate.step.seconds
        assert one.gain > 0


def test_more_effort_is_offered_only_where_it_pays_more() -> None:
    improvements = around(RESOLVED, MINE).improvements
    efforts = [one.effort for one in improvements]
    gains = [one.gain for one in improvements]
    assert efforts == sorted(set(efforts))
    assert gains == sorted(gains)


def test_a_plan_that_does_not_fit_is_offered_the_cheapest_one_that_does() -> None:
    answer = around(RESOLVED, MINE.model_copy(update={"zero_stage": 2}))
    assert not answer.candidate.fits
    assert answer.improvements
    assert all(one.candidate.fits for one in answer.improvements)


def test_buckets_stay_as_the_user_has_them_unless_another_one_pays() -> None:
    mine = MINE.model_copy(update={"reduce_bucket": 200_000_000})
    improvements = around(RESOLVED, mine).improvements
    assert any(one.candidate.plan.reduce_bucket == 200_000_000 for one in improvements)
    for one in improvements:
        kept = one.candidate.plan.model_copy(update={"reduce_bucket": 200_000_000})
        moved = one.candidate.plan.reduce_bucket != 200_000_000
        assert not moved or kept != one.candidate.plan


def test_a_smaller_share_on_the_host_and_fewer_recomputed_layers_are_offered() -> None:
    """Where the rest must stay, and there is room for more on the GPU."""
    plan = Plan(
        nodes=4, dp=32, zero_stage=3, grad_accum=8, recompute="full", offload_optimizer="cpu"
    )
    solved = {"recompute_layers", "reduce_bucket", "prefetch_bucket", "max_live_params"}
    rest = set(Plan.model_fields) - solved - {"overlap_comm", "offload_ratio"}
    kept = {name: getattr(plan, name) for name in rest}
    resolved = resolve("llama-2-70b", nodes=4, seq_len=4096, global_batch=256, fixed=kept)
    improvements = around(resolved, plan).improvements
    changed = {name for one in improvements for name in one.changes}
    assert changed & {"offload_ratio", "recompute_layers"}
    assert changed <= solved | {"overlap_comm", "offload_ratio"}


def test_a_plan_that_breaks_rules_is_scored_and_told_which() -> None:
    answer = around(RESOLVED, MINE.model_copy(update={"hpz": 3}))
    assert [v.rule for v in answer.violations] == ["hpz"]
    assert answer.candidate.step.seconds > 0
