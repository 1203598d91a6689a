"""The schedule against the published formula and a brute-force simulation."""

import numpy as np
import pytest

from cost_model import catalogue
from cost_model.pipeline import (
    bubble_seconds,
    divide,
    hand_over_seconds,
    uncovered_hand_over,
)
from cost_model.placement import Placement


def test_even_stages_wait_p_minus_one_over_m_of_the_work() -> None:
    # arXiv 2104.04473, section 2.2: bubble / ideal = (p - 1) / m
    p, m, t = 8, 32, 0.5
    bubble = bubble_seconds(np.array([p * t]), np.array([t]), np.array([1]))
    assert bubble[0] / (m * t) == pytest.approx((p - 1) / m)


def test_interleaving_divides_the_wait_by_the_chunks() -> None:
    plain = bubble_seconds(np.array([8.0]), np.array([1.0]), np.array([1]))
    chunked = bubble_seconds(np.array([8.0]), np.array([1.0]), np.array([4]))
    assert chunked[0] == pytest.approx(plain[0] / 4)


def test_an_interleaved_schedule_hands_over_after_every_chunk_but_beside_the_next() -> None:
    hop, chunks = np.array([1.0, 1.0, 1.0]), np.array([1, 4, 4])
    waits = hand_over_seconds(hop, chunks, np.array([True, True, False]))
    assert waits[0] == 1.0
    assert waits[1] < waits[0] < waits[2] == 4.0


def simulate_1f1b(forward: list[float], backward: list[float], m: int) -> float:
    """Finish time of the one-forward-one-backward schedule, event by event."""
    p = len(forward)
    ready_f = [[0.0] * m for _ in range(p + 1)]
    ready_b = [[0.0] * m for _ in range(p + 1)]
    orders = []
    for stage in range(p):
        warm = min(p - stage - 1, m)
        order = [("f", i) for i in range(warm)]
        for i in range(m - warm):
            order += [("f", warm + i), ("b", i)]
        orders.append(order + [("b", i) for i in range(m - warm, m)])
    clock, place, done = [0.0] * p, [0] * p, set()
    while any(place[s] < len(orders[s]) for s in range(p)):
        for s in range(p):
            while place[s] < len(orders[s]):
                kind, i = orders[s][place[s]]
                need = ("f", s - 1, i) if kind == "f" else ("b", s + 1, i)
                if kind == "f" and s > 0 and need not in done:
                    break
                if kind == "b" and s < p - 1 and need not in done:
                    break
                source = ready_f[s][i] if kind == "f" else ready_b[s][i]
                clock[s] = max(clock[s], source) + (forward[s] if kind == "f" else backward[s])
                (ready_f[s + 1] if kind == "f" else ready_b[s - 1])[i] = clock[s]
                done.add((kind, s, i))
                place[s] += 1
    return max(clock)


@pytest.mark.parametrize("slow", [0, 2, 3])
@pytest.mark.parametrize("m", [16, 32])
def test_one_slow_stage_sets_the_pace_of_the_simulated_schedule(slow: int, m: int) -> None:
    forward = [1.0] * 4
    forward[slow] = 1.5
    backward = [2.0 * f for f in forward]
    stage = [f + b for f, b in zip(forward, backward, strict=True)]
    formula = m * max(stage) + bubble_seconds(
        np.array([sum(stage)]), np.array([max(stage)]), np.array([1])
    )
    assert simulate_1f1b(forward, backward, m) == pytest.approx(formula[0], rel=0.06)


def simulate_gpipe(compute: float, transfer: float, p: int, m: int) -> float:
    """Finish time of the forward half of GPipe whose stages send on a stream of their own."""
    arrived = [0.0] * m
    for stage in range(p):
        computed, sent = 0.0, 0.0
        for i in range(m):
            computed = max(computed, arrived[i]) + compute
            sent = max(sent, computed) + (transfer if stage < p - 1 else 0.0)
            arrived[i] = sent
    return arrived[-1]


@pytest.mark.parametrize("transfer", [0.2, 1.0, 3.0])
def test_hand_overs_on_streams_of_their_own_take_what_a_simulation_says(transfer: float) -> None:
    p, m, compute = 6, 40, 1.0
    hop = np.array([2 * transfer])
    left = uncovered_hand_over(hop, np.array([compute]), np.array([compute]))[0] / 2
    said = m * (compute + left) + (p - 1) * (compute + transfer)
    assert said == pytest.approx(simulate_gpipe(compute, transfer, p, m), rel=0.03)


def test_stages_hold_every_layer_once_and_the_ends_once() -> None:
    model = catalogue.model("llama-2-70b")
    placed = Placement.parse("2x30+3x27")
    divisions = [(1, 0, 0, 0), (7, 0, 0, 0), (8, 9, 8, 0), (16, 0, 3, 0), (8, 14, 6, placed)]
    stages = divide(model, divisions)
    layers = (stages.layers.sum(-1) * stages.stages).sum(-1)
    assert layers.tolist() == [80] * 5
    assert (stages.first * stages.stages).sum(-1).tolist() == [1] * 5
    assert (stages.last * stages.stages).sum(-1).tolist() == [1] * 5
