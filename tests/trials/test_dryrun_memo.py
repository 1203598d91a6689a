"""Remembered answers on fake tensors are those that PyTorch derives."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trials.dryrun.partitions import pads
from trials.dryrun.tracker import LiveBytes


def layout(tensor: torch.Tensor) -> tuple[object, ...]:
    return (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device)


def step(live: LiveBytes | None) -> list[tuple[object, ...]]:
    """A few operations of all kinds, each of them twice."""
    seen = []
    for _ in range(2):
        flat = torch.empty(96, dtype=torch.bfloat16)
        weight = torch.nn.Parameter(flat[32:].view(8, 8))
        x = torch.ones(4, 8, dtype=torch.bfloat16, requires_grad=True)
        y = torch.nn.functional.linear(x, weight).float()
        y.mul_(2.0)
        parts = y.split(2)
        (parts[0].t().contiguous().sum() + parts[1].sum()).backward()
        assert weight.grad is not None
        assert y.untyped_storage()._cdata == parts[1].untyped_storage()._cdata
        seen += [layout(t) for t in (weight, y, parts[1], parts[0].t(), weight.grad)]
    return seen


def test_an_answer_from_memory_has_the_layout_of_the_derived_one() -> None:
    with FakeTensorMode():
        derived = step(None)
    live = LiveBytes(lambda tensor, category: category)
    with FakeTensorMode(), live:
        assert step(live) == derived


def test_remembered_tensors_are_new_storages_that_are_counted_and_freed() -> None:
    live = LiveBytes(lambda tensor, category: category)
    with FakeTensorMode(), live:
        kept = [torch.zeros(1024) for _ in range(3)]
        assert len({t.untyped_storage()._cdata for t in kept}) == 3
        assert live.now["cpu"] == 3 * 4096
        view = kept.pop()[:10]
        assert live.now["cpu"] == 3 * 4096
        del view
        assert live.now["cpu"] == 2 * 4096


@pytest.mark.parametrize(
    ("numel", "ranks", "wanted"),
    [(12, 4, []), (10, 4, [2]), (2, 4, [1, 1]), (9, 8, [1, 2, 2, 2])],
)
def test_the_last_ranks_parts_are_padded(numel: int, ranks: int, wanted: list[int]) -> None:
    assert pads(numel, -(-numel // ranks), ranks) == wanted
