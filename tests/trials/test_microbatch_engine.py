"""The adaptive micro-batch on DeepSpeed's engine, against training without one."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.trials.ranks import run_ranks
from trials.microbatch import AdaptiveMicroBatch, EngineMicroBatch, Limits, StepReport
from trials.microbatch.memory import MicroBatchTooLarge

SAMPLES = 6
"""Sequences of a rank and step: micro-batches of 1, 2, 3 and 6."""
RATE = 1e-2


class Small(nn.Module):
    """Two layers and their loss; refuses micro-batches that are too large, where told to."""

    def __init__(self, fails_in: str | None = None, largest: int = 99):
        super().__init__()
        torch.manual_seed(7)
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.fails_in, self.largest = fails_in, largest

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        middle = torch.tanh(self.first(x))
        if x.shape[0] > self.largest and self.fails_in == "forward":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if x.shape[0] > self.largest and self.fails_in == "backward":
            middle.register_hook(_refuse)
        return functional.mse_loss(self.second(middle), y)


def _refuse(grad: Tensor) -> Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def batch(step: int, rank: int, count: int = SAMPLES) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(count, 8, generator=draw), torch.randn(count, 4, generator=draw)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def without_engine(world: int, steps: int) -> tuple[list[float], Tensor]:
    """Losses and weights of plain PyTorch on the whole global batch."""
    model = Small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses = []
    for step in range(steps):
        parts = [batch(step, rank) for rank in range(world)]
        x, y = (torch.cat(t) for t in zip(*parts, strict=True))
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, flat(model)


def engine_of(world: int, model: nn.Module, stage: int, offload: bool = False) -> Any:
    import deepspeed

    zero: dict[str, Any] = {"stage": stage}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_batch_size": SAMPLES * world,
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": SAMPLES,
            "gradient_clipping": 0.0,
            "optimizer": {
                "type": "AdamW",
                "params": {"lr": RATE, "weight_decay": 0.0, "torch_adam": True},
            },
            "zero_optimization": zero,
            "steps_per_print": 10**9,
        },
    )
    return engine


def train(
    rank: int, world: int, stage: int, offload: bool, steps: int, fails_in: str | None, largest: int
) -> dict[str, Any]:
    """Trains with an idle report each step; only the last rank ever runs out of memory."""
    model = Small(fails_in if rank == world - 1 else None, largest)
    engine = engine_of(world, model, stage, offload)
    adaptive = AdaptiveMicroBatch(SAMPLES, limits=Limits(patience=2, worse=1e9))
    hooks = EngineMicroBatch(engine, adaptive)
    losses, triples = [], []
    for step in range(steps):
        loss = hooks.train_step(batch(step, rank), report=lambda: StepReport(utilisation=0.1))
        losses.append(loss)
        micro, accum = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
        triples.append((int(engine.train_batch_size()), int(micro), int(accum)))
    return {
        "losses": losses,
        "weights": flat(engine.module).tolist(),
        "sizes": adaptive.history,
        "triples": triples,
        "steps": engine.global_steps,
        "settled": adaptive.settled,
    }


def check(results: list[dict[str, Any]], world: int, steps: int) -> None:
    wanted, weights = without_engine(world, steps)
    mean = [sum(r["losses"][i] for r in results) / world for i in range(steps)]
    assert mean == pytest.approx(wanted, rel=1e-5)
    for result in results:
        assert torch.tensor(result["weights"]) == pytest.approx(weights, abs=2e-5)
        assert result["steps"] == steps
        assert all(b == m * a * world for b, m, a in result["triples"])
        assert {b for b, _, _ in result["triples"]} == {SAMPLES * world}
    assert all(r["sizes"] == results[0]["sizes"] for r in results)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "stage"), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)])
def test_training_is_the_same_while_the_micro_batch_grows(world: int, stage: int) -> None:
    results = run_ranks(train, world, stage, False, 9, None, 99)
    check(results, world, 9)
    assert results[0]["sizes"] == [1, 1, 2, 2, 3, 3, 6, 6, 6]
    assert results[0]["settled"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "stage", "fails_in", "offload"),
    [
        *((1, stage, where, False) for stage in (0, 1, 2) for where in ("forward", "backward")),
        (1, 2, "backward", True),
        *((2, stage, "forward", False) for stage in (0, 1, 2)),
        (2, 1, "backward", False),
    ],
)
def test_a_rank_out_of_memory_shrinks_all_and_no_gradient_is_lost(
    world: int, stage: int, fails_in: str, offload: bool
) -> None:
    results = run_ranks(train, world, stage, offload, 8, fails_in, 2)
    check(results, world, 8)
    # 3 is tried after the fourth step, fails, and is never tried again
    assert results[0]["sizes"] == [1, 1, 2, 2, 2, 2, 2, 2]
    assert results[0]["settled"]


def too_large(rank: int, world: int) -> str:
    hooks = EngineMicroBatch(engine_of(world, Small("forward", 0), 1), AdaptiveMicroBatch(SAMPLES))
    try:
        hooks.train_step(batch(0, rank))
    except MicroBatchTooLarge as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_a_smallest_micro_batch_that_does_not_fit_is_an_error() -> None:
    assert "micro-batch 1 is too large" in run_ranks(too_large, 1)[0]


def follows_accumulation(rank: int, world: int) -> tuple[list[int], list[int]]:
    engine = engine_of(world, Small(), 1)
    limits = Limits(largest=3, patience=1, worse=1e9)  # times of a shared machine are noise
    adaptive = AdaptiveMicroBatch(SAMPLES, limits=limits, keep="grad_accum")
    hooks = EngineMicroBatch(engine, adaptive)
    totals = []
    for step in range(4):
        micro, accum = adaptive.before_step()
        hooks.train_step(batch(step, rank, micro * accum), report=lambda: StepReport(0.1))
        totals.append(int(engine.train_batch_size()))
    return adaptive.history, totals


@pytest.mark.slow
def test_with_the_accumulation_kept_the_global_batch_grows_by_whole_micro_batches() -> None:
    history, totals = run_ranks(follows_accumulation, 1)[0]
    assert history == [1, 2, 3, 3]
    assert totals == [12, 18, 18, 18]


def test_an_engine_of_another_size_is_refused() -> None:
    class Engine:
        def train_micro_batch_size_per_gpu(self) -> int:
            return 2

        def gradient_accumulation_steps(self) -> int:
            return 3

    with pytest.raises(ValueError, match="micro-batch 2 x 3"):
        EngineMicroBatch(Engine(), AdaptiveMicroBatch(SAMPLES))
