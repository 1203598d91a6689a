"""Uneven stages against divisions worked by hand."""

import pytest

from cost_model.plans import PlanTable, Software
from planner.rules import rule
from planner.space.splits import EVEN, by_cost, head_in_layers, splits
from tests.planner.requests import resolve


@pytest.mark.parametrize(
    ("layers", "pp", "head", "ends"),
    [
        (32, 2, 2.0, (17, 15)),  # 17 and 15 + 2, instead of 16 and 16 + 2
        (32, 2, 0.5, None),  # 16 and 16.5; 17 would be slower
        (80, 8, 1.23, (6, 8)),  # 6, six of 11, 8 + 1.23: 11 instead of 10 + 1.23
        (30, 4, 0.0, (6, 8)),  # 6, 8, 8, 8: four even stages there are not
        (12, 12, 3.0, None),  # a stage has one layer at least
    ],
)
def test_the_slowest_stage_is_as_fast_as_can_be(
    layers: int, pp: int, head: float, ends: tuple[int, int] | None
) -> None:
    assert by_cost(layers, pp, head) == ends


def test_the_head_of_llama_3_70b_costs_one_layer_and_a_bit() -> None:
    """128,256 x 8,192 weights against 80 layers of 855.6 million; attention adds to the layers."""
    world = resolve("llama-3.1-70b", nodes=8, seq_len=1024).world
    assert head_in_layers(world.model, world.training) == pytest.approx(1_050_673_152 / 872e6, 0.02)


def test_even_stages_come_first_and_every_split_is_legal() -> None:
    world = resolve("llama-3.1-70b", nodes=8).world
    stage_rule = rule("stage-layers-pp")
    for pp in (1, 2, 4, 8, 16):
        offered = splits(world, Software.MEGATRON, pp)
        assert offered[0] == EVEN
        for first, last in offered:
            columns = {"first_stage_layers": first, "last_stage_layers": last}
            table = _table(software=Software.MEGATRON, pp=pp, **columns)
            assert stage_rule.legal(world, table).all()
    assert splits(world, Software.MEGATRON_DEEPSPEED, 8) == (EVEN,)


def _table(**columns: int) -> PlanTable:
    return PlanTable.from_columns(1, **columns)
