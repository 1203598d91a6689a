"""Which stage holds what, and that the search never overlooks the fullest one."""

import numpy as np
import pytest

from cost_model.catalogue import model
from cost_model.memory import detail, memory
from cost_model.memory.groups import group
from cost_model.memory.layout import layers_in_flight, stage_sizes
from cost_model.plans import Plan, PlanTable
from cost_model.prediction import MEMORY_CATEGORIES, MEMORY_PHASES
from cost_model.specs import TrainingSpec
from tests.cost_model.memory.samples import dgx, gpt, random_table


def test_layers_are_divided_evenly_with_the_rest_in_front() -> None:
    assert stage_sizes(30, 4) == [8, 8, 7, 7]


def test_fixed_ends_leave_the_rest_to_the_middle() -> None:
    assert stage_sizes(30, 4, first=5, last=7) == [5, 9, 9, 7]


@pytest.mark.parametrize(("p", "v"), [(4, 2), (8, 3), (8, 1)])
def test_interleaving_keeps_p_times_1_plus_p_minus_1_over_pv(p: int, v: int) -> None:
    """arXiv 2205.05198, section 4.2.3, in units of the stage's layers."""
    table = PlanTable.from_plans([Plan(pp=p, vpp=v, grad_accum=64)])
    expected = p * (1 + (p - 1) / (p * v)) if v > 1 else p
    assert layers_in_flight(table, np.array([0]))[0] == pytest.approx(expected)


def test_few_micro_batches_fill_no_pipeline() -> None:
    table = PlanTable.from_plans([Plan(pp=8, grad_accum=3)] * 8)
    assert layers_in_flight(table, np.arange(8)).tolist() == [3, 3, 3, 3, 3, 3, 2, 1]


def test_the_parameters_of_all_stages_are_the_models() -> None:
    llama = model("llama-2-70b")
    found = detail(llama, dgx(8), TrainingSpec(seq_len=4096, global_batch=64), Plan(pp=8, dp=8))
    assert sum(found.params) == pytest.approx(llama.params)


def test_a_tied_matrix_is_held_by_both_ends_of_a_pipeline() -> None:
    tied = gpt(1024, 8, 16)
    training = TrainingSpec(seq_len=1024, global_batch=8)
    assert tied.tied_embeddings
    found = detail(tied, dgx(), training, Plan(software="megatron", pp=4))
    assert sum(found.params) == pytest.approx(tied.params + 1024 * 51200)


@pytest.mark.parametrize("name", ["llama-2-7b", "deepseek-v3", "mixtral-8x7b"])
def test_the_fullest_stage_and_moment_are_found(name: str) -> None:
    """Against a loop over every stage and moment of every plan."""
    spec = model(name)
    training = TrainingSpec(seq_len=2048, global_batch=64, attention="flash2")
    table = random_table(spec, 120, seed=7)
    found = memory(spec, dgx(64), training, table)
    for row in range(len(table)):
        peak = detail(spec, dgx(64), training, table.plan(row)).peak
        assert found.total_bytes[row] == pytest.approx(peak.total, rel=1e-9)
        for category in MEMORY_CATEGORIES:
            assert found.categories[category][row] == pytest.approx(
                peak.categories[category], rel=1e-6, abs=1
            ), category


def test_categories_sum_to_the_total_and_phases_reach_it() -> None:
    spec = model("llama-3.1-8b")
    training = TrainingSpec(seq_len=4096, global_batch=64)
    table = random_table(spec, 4000, seed=3)
    found = memory(spec, dgx(8), training, table)
    np.testing.assert_allclose(sum(found.categories.values()), found.total_bytes)
    np.testing.assert_allclose(
        np.maximum.reduce([found.phases[name] for name in MEMORY_PHASES]), found.total_bytes
    )
    assert all((values >= 0).all() for values in found.categories.values())
    assert (found.reserved_bytes >= found.allocated_bytes).all()


def test_blocks_do_not_change_the_answer() -> None:
    spec = model("llama-3.1-8b")
    training = TrainingSpec(seq_len=4096, global_batch=64)
    table = random_table(spec, 20_000, seed=5)
    whole = memory(spec, dgx(8), training, table)
    part = memory(spec, dgx(8), training, table.take(slice(16_000, 17_000)))
    np.testing.assert_array_equal(whole.total_bytes[16_000:17_000], part.total_bytes)
    np.testing.assert_array_equal(whole.host_bytes[16_000:17_000], part.host_bytes)


def test_groups_number_equal_combinations_alike() -> None:
    rng = np.random.default_rng(1)
    columns = [
        rng.integers(0, 3, 5000),
        rng.integers(-5, 90_000, 5000) // 9000,
        rng.random(5000) > 0.5,
    ]
    found = group(*columns, np.where(columns[0] > 1, 0.25, 1.0))
    seen = {}
    for row in range(5000):
        key = tuple(c[row] for c in columns)
        assert seen.setdefault(key, found.of_row[row]) == found.of_row[row]
        assert tuple(c[found.first[found.of_row[row]]] for c in columns) == key
    assert found.count == len(seen)
