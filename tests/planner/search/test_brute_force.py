"""The ranked list against a plain loop over every combination of knobs, plan by plan."""

from collections.abc import Iterator
from itertools import product

import pytest

from cost_model.plans import Plan, PlanTable, Recompute, Software
from cost_model.predict import predict
from planner.request import Resolved
from planner.rules import legal
from planner.search import search
from planner.space import axes
from tests.planner.requests import resolve

FEW = {"tp": {"max": 2}, "sp": {"max": 2}, "ep": {"max": 2}, "micro_batch": {"max": 4}}
SMALL = [
    {"cluster": "v100-quad", "global_batch": 4, "seq_len": 1024, "limits": FEW},
    {"cluster": "v100-quad", "nodes": 2, "global_batch": 8, "seq_len": 512, "limits": FEW},
    {"model": "mixtral-8x7b", "cluster": "dgx-h200", "global_batch": 8, "limits": FEW},
    {"cluster": "4090-box", "global_batch": 8, "training": {"lora": {}}, "limits": FEW},
    {"model": "llama-2-13b", "global_batch": 8, "objective": "cost", "limits": FEW},
]


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
            yield Plan(software=software, **knobs)


@pytest.mark.parametrize("question", SMALL, ids=range(len(SMALL)))
def test_the_ranking_equals_a_loop_over_all_combinations(question: dict[str, object]) -> None:
    resolved = resolve(**question, keep=10_000)  # type: ignore[arg-type]
    world = resolved.world
    combinations = list(_combinations(resolved))
    lawful = legal(world, PlanTable.from_plans(combinations))
    plans = [plan for plan, kept in zip(combinations, lawful, strict=True) if kept]
    table = PlanTable.from_plans(plans)
    found = predict(world.model, world.cluster, world.training, table)
    fitting = [
        (float(found.step.seconds[row]), plan)
        for row, plan in enumerate(plans)
        if found.fits_probability[row] >= resolved.search.min_fits_probability
    ]
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
def test_the_recomputed_layers_are_the_fewest_that_fit(question: dict[str, object]) -> None:
    """Against a loop over every number of layers, for every plan that needs recompute."""
    resolved = resolve(**question, keep=10_000)  # type: ignore[arg-type]
    world = resolved.world
    candidates = search(resolved).candidates
    full = [c.plan for c in candidates if c.plan.recompute == Recompute.FULL]
    whole = [p for p in full if p.recompute_layers == -1]
    assert whole
    for plan in whole[:: max(1, len(whole) // 40)]:
        stage = -(-world.model.layers // plan.pp)
        ks = range(stage + 1)
        table = PlanTable.from_plans([_recomputing(plan, k) for k in ks])
        chance = predict(world.model, world.cluster, world.training, table).fits_probability
        fewest = next(k for k in ks if chance[k] >= resolved.search.min_fits_probability)
        found = [p.recompute_layers for p in full if _but_layers(p) == _but_layers(plan)]
        expected = [-1] if fewest in {0, stage} else [-1, fewest]
        assert sorted(found) == expected


def _but_layers(plan: Plan) -> str:
    return plan.model_copy(update={"recompute_layers": -1}).model_dump_json()


def _recomputing(plan: Plan, layers: int) -> Plan:
    if layers:
        return plan.model_copy(update={"recompute_layers": layers})
    off = {"recompute": 0, "partition_activations": False, "cpu_checkpointing": False}
    return plan.model_copy(update=off)
