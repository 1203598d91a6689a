import pytest

from cost_model.calibration.cluster import uncalibrated
from planner.ranking import rank
from tests.trials.campaign.machine import Machine, many_gpus, request
from trials.campaign import (
    CampaignSettings,
    CampaignState,
    begin,
    learn,
    propose,
    run,
    submitted,
)

SLOW_LINKS = {"gemm": 0.3, "link_bandwidth": -2.5, "link_latency": 1.0, "hooks": 1.0}
"""A machine on which traffic costs twelve times what the shipped figures say."""


def all_seconds(machine: Machine, resolved: object) -> list[float]:
    table = rank(resolved).table  # type: ignore[arg-type]
    r = resolved
    return [
        machine.seconds(r.model, r.training, table.plan(row))  # type: ignore[attr-defined]
        for row in range(len(table))
    ]


def test_the_choice_is_the_best_of_the_space_within_five_per_cent() -> None:
    resolved = request(keep=400)
    machine = Machine(resolved, SLOW_LINKS, own=0.05)
    state = run(resolved, CampaignSettings(max_trials=8), "c", machine)
    assert state.best is not None
    chosen = machine.seconds(resolved.model, resolved.training, state.best)
    assert chosen <= 1.05 * min(all_seconds(machine, resolved))
    assert len(state.trials) <= 8


def test_predictions_come_nearer_with_every_trial() -> None:
    resolved = request()
    machine = Machine(resolved, {"gemm": -0.7, "memory": -0.5})
    state = run(resolved, CampaignSettings(max_trials=4, confidence=1.0), "c", machine)
    errors = [
        abs(t.predicted_seconds / t.measured_seconds - 1)
        for t in state.trials
        if t.measured_seconds is not None
    ]
    assert errors[0] > 0.3
    assert errors[-1] < 0.05
    assert state.calibration.n_trials == 4
    assert state.calibration.spread < uncalibrated(resolved.cluster).spread / 3


def test_it_ends_when_the_best_is_known_with_the_asked_confidence() -> None:
    resolved = request(limits={"tp": {"max": 1}, "pp": {"max": 1}, "sp": {"max": 1}})
    machine = Machine(resolved, {"gemm": 0.2})
    settings = CampaignSettings(max_trials=30, confidence=0.8, tolerance=0.2)
    state = run(resolved, settings, "c", machine)
    assert state.ended == "confident"
    assert state.confidence >= 0.8
    assert len(state.trials) < 10


def test_one_plan_is_never_tried_twice_and_every_id_is_new() -> None:
    resolved = request()
    machine = Machine(resolved, SLOW_LINKS, own=0.1)
    settings = CampaignSettings(max_trials=9, confidence=1.0, parallel=3)
    state = run(resolved, settings, "c", machine)
    assert [t.trial_id for t in state.trials] == [f"c-{n:03d}" for n in range(9)]
    assert len({t.plan for t in state.trials}) == 9
    assert state.ended == "budget spent"


def test_as_many_trials_run_at_a_time_as_are_allowed() -> None:
    resolved = request()
    state = begin(resolved, CampaignSettings(parallel=2), "c", ranks=2)
    files = propose(resolved, state)
    assert len(files) == 2
    state = submitted(state, files)
    assert propose(resolved, state) == ()


def test_submitting_twice_changes_nothing() -> None:
    resolved = request()
    state = begin(resolved, CampaignSettings(), "c", ranks=2)
    files = propose(resolved, state)
    once = submitted(state, files)
    assert submitted(once, files) == once


def test_a_campaign_read_back_from_json_goes_on_with_the_same_trials() -> None:
    resolved = request()
    machine = Machine(resolved, SLOW_LINKS, own=0.05)
    settings = CampaignSettings(max_trials=5, confidence=1.0)
    whole: list[CampaignState] = []
    run(resolved, settings, "c", machine, on_change=whole.append)
    for state in whole[:-1]:
        copy = CampaignState.model_validate_json(state.model_dump_json())
        assert copy == state
        later = [t.trial_id for t in whole[-1].trials][len(copy.trials) :]
        again = propose(resolved, copy)
        if again:
            assert again[0].trial_id == later[0]
            assert again[0].model_dump() == machine.files[later[0]].model_dump()


def test_a_plan_that_fails_is_no_candidate_any_more() -> None:
    resolved = request()
    machine = Machine(resolved, {}, fails={"c-000": "out_of_host_memory"})
    state = run(resolved, CampaignSettings(max_trials=3), "c", machine)
    failed = state.trials[0].plan
    assert state.trials[0].outcome == "out_of_host_memory"
    assert failed not in [r.plan for r in state.ranking]
    assert state.best != failed
    assert state.trials[1].outcome == "ok"


def test_a_trial_that_never_came_to_run_is_tried_once_more() -> None:
    resolved = request()
    machine = Machine(resolved, {}, fails={"c-000": "launch_failure"})
    state = run(resolved, CampaignSettings(max_trials=2, confidence=1.0), "c", machine)
    assert state.trials[0].outcome == "launch_failure"
    assert state.trials[1].plan == state.trials[0].plan
    assert state.trials[1].outcome == "ok"


def test_after_a_failure_the_next_plan_is_of_another_kind() -> None:
    resolved = request()
    machine = Machine(resolved, {}, fails={"c-000": "out_of_host_memory"})
    state = run(resolved, CampaignSettings(max_trials=2, confidence=1.0), "c", machine)
    first, second = state.trials[0].plan, state.trials[1].plan
    assert (first.zero_stage, first.software, first.tp) != (
        second.zero_stage,
        second.software,
        second.tp,
    )


def test_where_nothing_runs_it_ends_early_and_says_so() -> None:
    resolved = request()
    fails = {f"c-{n:03d}": "launch_failure" for n in range(9)}
    machine = Machine(resolved, {}, fails=fails)  # type: ignore[arg-type]
    state = run(resolved, CampaignSettings(max_trials=9), "c", machine)
    assert state.ended == "nothing runs"
    assert len(state.trials) == 3


def test_a_space_without_a_plan_that_fits_ends_at_once() -> None:
    resolved = many_gpus(1)
    tiny = resolved.cluster.node.gpu.model_copy(update={"memory_gib": 2.0})
    node = resolved.cluster.node.model_copy(update={"gpu": tiny})
    cluster = resolved.cluster.model_copy(update={"node": node})
    small = type(resolved)(resolved.model, cluster, resolved.training, resolved.search)
    state = begin(small, CampaignSettings(), "c", ranks=8)
    assert state.ended == "nothing fits"
    assert propose(small, state) == ()


def test_trials_slower_than_the_best_are_to_stop_early() -> None:
    resolved = request()
    machine = Machine(resolved, SLOW_LINKS)
    settings = CampaignSettings(max_trials=4, confidence=1.0, prune_above=1.3)
    state = run(resolved, settings, "c", machine)
    first = state.trials[0].measured_seconds
    assert first is not None
    assert machine.files["c-000"].step_limit_s is None
    assert machine.files["c-001"].step_limit_s == pytest.approx(1.3 * first)


def test_only_the_first_trial_measures_links_and_kernels() -> None:
    resolved = request()
    state = begin(resolved, CampaignSettings(), "c", ranks=2)
    assert propose(resolved, state)[0].sweep_collectives


def test_what_was_learned_is_where_the_next_campaign_begins() -> None:
    resolved = request()
    machine = Machine(resolved, {"gemm": -0.7})
    first = run(resolved, CampaignSettings(max_trials=3), "a", machine).calibration
    state = begin(resolved, CampaignSettings(), "b", ranks=2, known=first)
    file = propose(resolved, state)[0]
    assert file.proposal is not None
    truth = machine.seconds(file.model, file.training, file.plan)
    assert file.proposal.predicted_seconds == pytest.approx(truth, rel=0.05)


def test_a_calibration_of_another_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="the calibration is of"):
        begin(
            request(),
            CampaignSettings(),
            "c",
            ranks=2,
            known=uncalibrated(many_gpus().cluster),
        )


def test_trials_on_another_device_teach_nothing() -> None:
    gpus = many_gpus(1)
    state = begin(gpus, CampaignSettings(max_trials=1), "c", ranks=8)
    files = propose(gpus, state)
    cpu = Machine(request(), {})
    result = cpu._run(files[0])
    state = learn(gpus, submitted(state, files), {files[0].trial_id: result})
    assert state.trials[0].foreign
    assert state.calibration == state.prior
    assert any("another device" in note for note in state.notes)


def test_the_seconds_of_all_trials_together_are_a_budget_too() -> None:
    resolved = request()
    settings = CampaignSettings(max_trials=9, confidence=1.0, max_seconds=5.0)
    state = run(resolved, settings, "c", Machine(resolved, {}))
    assert state.ended == "time spent"
    assert len(state.trials) == 2  # of three seconds each


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
def test_every_sampler_can_be_asked(sampler: str) -> None:
    resolved = request()
    settings = CampaignSettings(max_trials=3, confidence=1.0, sampler=sampler)  # type: ignore[arg-type]
    state = run(resolved, settings, "c", Machine(resolved, SLOW_LINKS, own=0.2))
    assert len({t.plan for t in state.trials}) == 3
    assert state.trials[0].origin == "ranking"  # the third is the sampler's where it has hope
