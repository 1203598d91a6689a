"""The ranked list against a plain loop over every combination of knobs, plan by plan."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cost_model.plans import Offload, Plan, PlanTable, Recompute, Software
from cost_model.predict import predict
from planner.request import Resolved
from planner.rules import legal
from planner.search import search
from planner.space import axes
from planner.space.splits import splits
from tests.planner.requests import resolve

FEW = {"tp": {"max": 2}, "sp": {"max": 2}, "ep": {"max": 2}, "micro_batch": {"max": 4}}
SMALL = [
    {
        "cluster": "v100-quad",
        "global_batch": 4,
        "seq_len": 1024,
        "limits": FEW,
        "allow": {"compression": True},
        "training": {"precision": "fp32"},
    },
    {"cluster": "v100-quad", "nodes": 2, "global_batch": 8, "seq_len": 512, "limits": FEW},
    {"model": "mixtral-8x7b", "cluster": "dgx-h200", "global_batch": 8, "limits": FEW},
    {"cluster": "4090-box", "global_batch": 8, "training": {"lora": {}}, "limits": FEW},
    {"model": "llama-2-13b", "global_batch": 8, "objective": "cost", "limits": FEW},
    {
        "cluster": "dgx-a100-40g",
        "model": "llama-2-13b",
        "global_batch": 8,
        "limits": FEW | {"tp": {"max": 1}, "pp": {"min": 2}, "cp": {"max": 2}},
        "software": ["megatron", "deepspeed_pipeline"],
    },
]


SIZES = [5e8, 2e8, 1e8, 5e7]
"""Reduce buckets of ZeRO 1 and 2, the roomiest first; with overlap before without."""

RUNGS_3 = [(5e8, 1e9), (5e7, 1e9), (5e7, 3e8), (5e7, 1e8)]
"""Reduce bucket and live parameters of ZeRO 3, the roomiest first."""

PREFETCH = [5e7, 2e8, 5e8]
TENTHS = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]


def _combinations(resolved: Resolved) -> Iterator[Plan]:
    """Every combination of axis values as a plan, nodes and accumulation following from them."""
    world = resolved.world
    for software in resolved.search.software:
        values = axes(world, resolved.search, Software(software)).values
        for row in product(*(column.tolist() for column in values.values())):
            knobs = dict(zip(values, row, strict=True))
            ranks = knobs["tp"] * knobs["pp"] * knobs["dp"] * knobs["sp"] * knobs["cp"]
            knobs["nodes"] = -(-ranks // world.cluster.node.gpus_per_node)
            unit = knobs["micro_batch"] * knobs["dp"]
            knobs["grad_accum"] = max(1, world.training.global_batch // unit)
            if unit * knobs["grad_accum"] != world.training.global_batch:
                continue
            if knobs["nodes"] * world.cluster.node.gpus_per_node != ranks:
                continue
            stages = splits(world, software, knobs["pp"])
            number = knobs.pop("split")
            if number >= len(stages):
                continue
            knobs["first_stage_layers"], knobs["last_stage_layers"] = stages[number]
            yield Plan(software=software, **knobs)


def _settings(plan: Plan) -> Iterator[Plan]:
    """The plan with every setting of its fine knobs but the prefetch, in order of preference."""
    if plan.zero_stage in (1, 2):
        for overlap, size in product((True, False), SIZES):
            yield plan.model_copy(update={"overlap_comm": overlap, "reduce_bucket": int(size)})
        return
    partial = plan.zero_stage == 3 and plan.offload_optimizer == Offload.CPU
    for ratio in TENTHS if partial else [1.0]:
        for reduce, live in RUNGS_3 if plan.zero_stage == 3 else [(5e8, 1e9)]:
            fine = {"reduce_bucket": int(reduce), "max_live_params": int(live)}
            yield plan.model_copy(update=fine | {"offload_ratio": ratio})


def _with_prefetch(plan: Plan) -> list[Plan]:
    """A plan of ZeRO 3 with every prefetch that may be alive, the default first."""
    sizes = [int(size) for size in PREFETCH if size <= plan.max_live_params]
    return [plan.model_copy(update={"prefetch_bucket": size}) for size in sizes]


def _predicted(resolved: Resolved, plans: list[Plan]) -> list[tuple[float, Plan]]:
    """Seconds of each plan, infinite where it does not fit."""
    world = resolved.world
    said = predict(world.model, world.cluster, world.training, PlanTable.from_plans(plans))
    fits = said.fits_probability >= resolved.search.min_fits_probability
    return list(zip(np.where(fits, said.step.seconds, np.inf).tolist(), plans, strict=True))


def _first(found: list[tuple[float, Plan]]) -> tuple[float, Plan]:
    """The first that no other beats by more than a thousandth."""
    return next(one for one in found if one[0] <= min(found, key=_seconds)[0] * (1 + 1e-3))


def _best_setting(resolved: Resolved, plans: list[Plan]) -> list[tuple[float, Plan]]:
    """Of every plan that fits anywhere the best setting.

    ZeRO 3 settles the share that is offloaded at its tightest rung, then the rung, then the
    prefetch; what that loses against all of them at once is below a hundredth.
    """
    settings = [(number, s) for number, plan in enumerate(plans) for s in _settings(plan)]
    found = _predicted(resolved, [s for _, s in settings])
    fitting: dict[int, list[tuple[float, Plan]]] = {}
    for (number, _), one in zip(settings, found, strict=True):
        if np.isfinite(one[0]):
            fitting.setdefault(number, []).append(one)
    settled = []
    for each in fitting.values():
        best = _first(each)
        if best[1].zero_stage == 3:
            tight = [one for one in each if one[1].max_live_params == int(RUNGS_3[-1][1])]
            ratio = _first(tight)[1].offload_ratio
            fastest = min(each, key=_seconds)[0]
            best = _first([one for one in each if one[1].offload_ratio == ratio])
            assert best[0] <= fastest * 1.01
        settled.append(best)
    ahead = [_with_prefetch(p) if p.zero_stage == 3 else [p] for _, p in settled]
    every = iter(_predicted(resolved, [plan for plans in ahead for plan in plans]))
    return [_first([next(every) for _ in plans]) for plans in ahead]


def _seconds(one: tuple[float, Plan]) -> float:
    return one[0]


@pytest.mark.parametrize("question", SMALL, ids=range(len(SMALL)))
def test_the_ranking_equals_a_loop_over_all_combinations(question: dict[str, object]) -> None:
    resolved = resolve(**question, keep=10_000)  # type: ignore[arg-type]
    world = resolved.world
    combinations = list(_combinations(resolved))
    lawful = legal(world, PlanTable.from_plans(combinations))
    plans = [plan for plan, kept in zip(combinations, lawful, strict=True) if kept]
    fitting = _best_setting(resolved, plans)
    gpus = (lambda p: p.world_size) if resolved.search.objective == "cost" else (lambda p: 1)
    expected = sorted(seconds * gpus(plan) for seconds, plan in fitting)

    result = search(resolved)

    enumerated = [c for c in result.candidates if c.plan.recompute_layers == -1]
    ranked = {c.plan.model_dump_json() for c in enumerated}
    assert ranked == {plan.model_dump_json() for _, plan in fitting}
    scores = [c.step.seconds * gpus(c.plan) for c in enumerated]
    assert scores == pytest.approx(expected, rel=1e-12)
    every = [c.step.seconds * gpus(c.plan) for c in result.candidates]
    assert every == sorted(every)
    assert result.certificate.fitting == len(fitting)
    assert result.certificate.legal <= len(plans)


@pytest.mark.parametrize("question", SMALL, ids=range(len(SMALL)))
def test_a_short_ranking_is_the_head_of_the_whole_one(question: dict[str, object]) -> None:
    """What is pruned by bound could not have entered."""
    whole = search(resolve(**question, keep=10_000)).candidates  # type: ignore[arg-type]
    short = search(resolve(**question, keep=15)).candidates  # type: ignore[arg-type]
    assert [c.plan for c in short] == [c.plan for c in whole[:15]]


@pytest.mark.parametrize("question", SMALL, ids=range(len(SMALL)))
def test_the_recomputed_layers_are_the_fewest_that_fit(question: dict[str, object]) -> None:
    """Against a loop over every number of layers, for every plan that needs recompute."""
    resolved = resolve(**question, keep=10_000)  # type: ignore[arg-type]
    world = resolved.world
    candidates = search(resolved).candidates
    modes = (Recompute.FULL, Recompute.MLP)
    recomputing = [c.plan for c in candidates if c.plan.recompute in modes]
    found = {_but_solved(p): p for p in recomputing if p.recompute_layers > 0}
    whole = [p for p in recomputing if p.recompute_layers == -1]
    assert whole
    for plan in whole[:: max(1, len(whole) // 40)]:
        stage = -(-world.model.layers // plan.pp)
        ks = range(stage + 1)
        ahead = {"prefetch_bucket": Plan().prefetch_bucket}  # another is chosen after the layers
        settings = list(_settings(plan.model_copy(update=ahead)))
        rows = [_recomputing(setting, k) for setting in settings for k in ks]
        said = predict(world.model, world.cluster, world.training, PlanTable.from_plans(rows))
        fits = said.fits_probability >= resolved.search.min_fits_probability
        seconds = np.where(fits, said.step.seconds, np.inf).reshape(len(settings), len(ks))
        solved = found.get(_but_solved(plan))
        if np.isfinite(seconds[:, 0]).any() or not np.isfinite(seconds[:, :stage]).any():
            assert solved is None
            continue
        assert solved is not None
        own = predict(world.model, world.cluster, world.training, PlanTable.from_plans([solved]))
        assert own.fits_probability[0] >= resolved.search.min_fits_probability
        fewest = [np.flatnonzero(np.isfinite(s[:stage])) for s in seconds]
        best = min(s[k[0]] for s, k in zip(seconds, fewest, strict=True) if len(k))
        assert own.step.seconds[0] <= best * (1 + 2e-3)


def _but_solved(plan: Plan) -> str:
    solved = {"recompute_layers", "offload_ratio", "reduce_bucket", "max_live_params"}
    solved |= {"overlap_comm", "prefetch_bucket"}
    return plan.model_dump_json(exclude=solved)


def _recomputing(plan: Plan, layers: int) -> Plan:
    if layers:
        return plan.model_copy(update={"recompute_layers": layers})
    off = {"recompute": 0, "partition_activations": False, "cpu_checkpointing": False}
    return plan.model_copy(update=off)


def test_overlap_is_given_up_where_one_bucket_is_what_is_missing() -> None:
    """A GPU with a little less memory than the plan takes with overlap in its smallest buckets."""
    fixed = {"dp": 8, "zero_stage": 1, "micro_batch": 1, "recompute": "full", "pp": 1}
    options = {"fixed": fixed, "software": ["deepspeed"], "min_fits_probability": 0.5}
    options["allow"] = {"offload": False, "chunked_loss": False}
    resolved = resolve("llama-2-7b", **options)  # type: ignore[arg-type]
    plan = Plan(grad_accum=8, **fixed)  # type: ignore[arg-type]
    least = {}
    for overlap in (True, False):
        rows = [s for s in _settings(plan) if s.overlap_comm == overlap]
        world = resolved.world
        said = predict(world.model, world.cluster, world.training, PlanTable.from_plans(rows))
        least[overlap] = said.memory.total_bytes.min()
    assert least[False] < least[True]
    gib = float(np.mean(list(least.values()))) / 2**30
    node = resolved.cluster.node
    gpu = node.gpu.model_copy(update={"memory_gib": gib})
    smaller = node.model_copy(update={"gpu": gpu})
    cluster = resolved.cluster.model_copy(update={"node": smaller})
    found = search(replace(resolved, cluster=cluster)).candidates
    assert found
    assert not any(one.plan.overlap_comm for one in found)
