"""One prediction of everything: memory, step time, and how sure of both."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.calibration.memory import MemoryCoefficients
from cost_model.calibration.same import Same
from cost_model.memory import fits_probability, interval, memory
from cost_model.plans import BLOCK, Floats, PlanTable, Software
from cost_model.prediction import TRANSFERS, MemoryPrediction, Prediction, StepPrediction
from cost_model.specs.cluster import ClusterSpec, Gpu
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec
from cost_model.step import step_time

# Once these 16 MB are freed, the C library keeps blocks up to their size instead of handing each
# back to the system, which has to clear its pages anew (mallopt(3), "dynamic mmap threshold"): a
# tenth of the time of a prediction.
np.empty(2 << 20)

Z90 = 1.6449
"""Standard normal quantile of 95 %: half of a two-sided 90 % interval."""


def predict(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    coefficients: Coefficients | None = None,
    memory_coefficients: MemoryCoefficients | None = None,
) -> Prediction:
    """Memory and step time of each plan, with 90 % intervals [plans].

    Coefficients default to the shipped sets. A GPU type that was never fitted takes those of its
    architecture and a wider interval. Large tables are evaluated in blocks; the result holds
    every column of every plan, so a search over many millions should call with its own blocks.
    """
    known = coefficients or Coefficients.default()
    starts = range(0, max(len(table), 1), BLOCK)
    blocks = [
        _block(
            model,
            cluster,
            training,
            table if len(starts) == 1 else table.take(slice(start, start + BLOCK)),
            known,
            memory_coefficients,
        )
        for start in starts
    ]
    return blocks[0] if len(blocks) == 1 else _joined(blocks)


def _block(
    model: ModelSpec,
    cluster: ClusterSpec,
    training: TrainingSpec,
    table: PlanTable,
    known: Coefficients,
    memory_coefficients: MemoryCoefficients | None,
) -> Prediction:
    held = memory(model, cluster, training, table, memory_coefficients)
    step = step_time(model, cluster, training, table, known)
    low, high = interval(held, memory_coefficients)
    factor = np.exp(Z90 * step_sigma(cluster, table, step, known))
    probability = fits_probability(held, cluster, memory_coefficients)
    return Prediction(
        memory=held,
        step=step,
        total_bytes_low=low,
        total_bytes_high=high,
        seconds_low=step.seconds / factor,
        seconds_high=step.seconds * factor,
        fits_probability=probability,
        fits=probability >= 0.5,
    )


def step_sigma(
    cluster: ClusterSpec, table: PlanTable, step: StepPrediction, known: Coefficients
) -> Floats:
    """Log-normal standard deviation of measured over predicted step time [plans].

    By software and architecture, wider for a GPU type that was never fitted, wider as the host
    rather than the GPU sets the pace (host speed differs from machine to machine and is in no data
    sheet), and wider by what share of the step waits for transfers.
    """
    spreads = _spreads(Same(known), Same(cluster.node.gpu))
    base, small, links = spreads.take(table.software, axis=1)
    host = step.parts["overhead"] / step.seconds
    moved = sum((step.parts[name] for name in TRANSFERS), np.zeros_like(step.seconds))
    waits = links * moved / step.seconds
    sigma: Floats = np.sqrt(base * base + (small * host) ** 2 + waits * waits)
    return sigma


@lru_cache(maxsize=16)
def _spreads(known: Same[Coefficients], gpu: Same[Gpu]) -> Floats:
    """By software: of the GPU, added by the host, added by transfers [3, software]."""
    spreads = [known.known.spread_of(s, gpu.known) for s in Software]
    sure = known.known.knows(gpu.known)
    return np.array(
        [
            [s.known if sure else s.unknown_gpu for s in spreads],
            [s.small for s in spreads],
            [s.transfers for s in spreads],
        ]
    )


def _joined(blocks: list[Prediction]) -> Prediction:
    return Prediction(
        memory=MemoryPrediction(**_columns([b.memory for b in blocks])),
        step=StepPrediction(**_columns([b.step for b in blocks])),
        **{
            name: np.concatenate([getattr(b, name) for b in blocks])
            for name in (f.name for f in fields(Prediction))
            if name not in ("memory", "step")
        },
    )


def _columns(blocks: Sequence[MemoryPrediction | StepPrediction]) -> dict[str, Any]:
    """Fields of the blocks, joined: arrays, or dictionaries of arrays."""
    out: dict[str, Any] = {}
    for field in fields(blocks[0]):
        values = [getattr(b, field.name) for b in blocks]
        if isinstance(values[0], Mapping):
            out[field.name] = {k: np.concatenate([v[k] for v in values]) for k in values[0]}
        elif values[0] is None:
            out[field.name] = None
        else:
            out[field.name] = np.concatenate(values)
    return out
