"""What the allocator ends up holding: against a miniature of it, and by mechanism."""

import numpy as np
import pytest

from cost_model.calibration.memory import default_memory_coefficients
from cost_model.memory import detail
from cost_model.plans import Plan, Software
from cost_model.specs import TrainingSpec, explicit
from tests.cost_model.memory.caching_allocator import CachingAllocator
from tests.cost_model.memory.samples import GIB, dgx

HIDDEN, LAYERS, WIDE, VOCAB, TOKENS = 4096, 32, 16384, 51200, 2048
GPT = explicit(
    name="gpt", hidden=HIDDEN, layers=LAYERS, heads=32, intermediate=WIDE, vocab=VOCAB, gated=False
)
TRAINING = TrainingSpec(seq_len=TOKENS, global_batch=64, precision="bf16", fused_norm=True)


def held_of_a_stage(stages: int, tp: int, micro_batches: int) -> CachingAllocator:
    """Three steps of a first stage of Megatron: fp32 gradients and Adam states for good, the states
    made in the first step, when activations have cut the cache up already."""
    cache = CachingAllocator()
    layers = LAYERS // stages
    matrices = [3 * HIDDEN * HIDDEN, HIDDEN * HIDDEN, HIDDEN * WIDE, HIDDEN * WIDE]
    params = [VOCAB * HIDDEN // tp] + [m // tp for m in matrices] * layers
    for size in params:
        for width in (2, 4, 4):  # weights, gradients, master copy
            cache.take(width * size)

    def forward() -> list[int]:
        kept: list[int] = []
        for _ in range(layers):
            # norms' inputs and outputs, query, key, value, attention, two of the feed-forward
            narrow, wide = 2 * TOKENS * HIDDEN, 2 * TOKENS * WIDE // tp
            product = cache.take(3 * narrow // tp)
            kept += [cache.take(narrow // tp) for _ in range(3)]
            cache.give_back(product)
            kept += [cache.take(narrow // tp), cache.take(narrow // tp), cache.take(narrow // tp)]
            kept += [cache.take(wide), cache.take(wide)]
            gathered = cache.take(narrow)
            kept += [cache.take(narrow // tp), cache.take(narrow // tp)]
            cache.give_back(gathered)
        return kept

    def backward(kept: list[int]) -> None:
        while kept:
            gradient = cache.take(2 * TOKENS * WIDE // tp)
            for _ in range(min(5, len(kept))):
                cache.give_back(kept.pop())
            cache.give_back(gradient)

    for step in range(3):
        in_flight: list[list[int]] = []
        for _ in range(micro_batches):
            in_flight.append(forward())
            if len(in_flight) == stages:
                backward(in_flight.pop(0))
        while in_flight:
            backward(in_flight.pop(0))
        if step == 0:
            for size in params:
                cache.take(4 * size)
                cache.take(4 * size)
    return cache


@pytest.mark.parametrize(("stages", "tp"), [(1, 1), (4, 1), (8, 1), (1, 8), (4, 2)])
def test_regular_passes_leave_the_allocator_with_few_per_cent_it_does_not_use(
    stages: int, tp: int
) -> None:
    cache = held_of_a_stage(stages, tp, 2 * stages)
    assert cache.peak <= cache.reserved < 1.06 * cache.peak


@pytest.mark.parametrize(("stages", "tp"), [(1, 1), (4, 1), (8, 1), (1, 8)])
def test_predicted_reserved_bytes_exceed_allocated_ones_as_the_allocators_do_but_for_a_floor(
    stages: int, tp: int
) -> None:
    cache = held_of_a_stage(stages, tp, 2 * stages)
    plan = Plan(software=Software.MEGATRON, pp=stages, tp=tp, grad_accum=2 * stages)
    found = detail(GPT, dgx(1), TRAINING, plan)
    floor = GIB * default_memory_coefficients().of(Software.MEGATRON).cache_floor_gib
    beyond = found.reserved[0] / (found.allocated[0] + floor)
    assert beyond == pytest.approx(cache.reserved / cache.peak, abs=0.06)


def test_sequence_parallelism_leaves_two_gathered_inputs_of_each_layer_in_flight() -> None:
    held = []
    for blocks in (0, 2):
        known = default_memory_coefficients()
        profile = known.of(Software.MEGATRON).model_copy(
            update={"gathered_blocks": blocks, "cache_growth": 0}
        )
        known = known.model_copy(update={"software": {**known.software, "megatron": profile}})
        plan = Plan(software=Software.MEGATRON, tp=4, sequence_parallel=True, pp=2, grad_accum=4)
        held.append(detail(GPT, dgx(1), TRAINING, plan, known).reserved)
    more = np.subtract(held[1], held[0])
    layer = 2 * TOKENS * HIDDEN * 2
    assert more == pytest.approx([2 * 16 * layer, 16 * layer])  # micro-batches in flight: 2 and 1
