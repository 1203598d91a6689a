"""What one stage of each plan holds at each moment of a step, by category."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cost_model.memory.buffers import SUB_GROUP, Buffers, gathered_weights
from cost_model.memory.states import Rates
from cost_model.memory.work import StageWork
from cost_model.plans import Floats

MOMENTS = ("init", "loss", "layer", "backward_end", "step", "save")
"""When memory can peak: at start; at the loss; in the backward pass of the last layer, when all
activations are still there; at the end of the backward pass, when all gradients are; in the
optimizer's step; while a checkpoint is written."""

PHASE_OF_MOMENT = (0, 1, 1, 1, 2, 3)
"""Index into MEMORY_PHASES."""

Parts = dict[str, Floats]
"""Bytes by category; a category that is not there holds nothing."""


@dataclass(frozen=True)
class Footprint:
    """Bytes on one rank of a stage [rows]."""

    static: Parts
    """The same at every moment but init."""
    moments: tuple[Parts, ...]
    """What comes on top, by MOMENTS."""
    held: Floats
    """Gradients and workspaces held from step to step."""
    cached: Floats
    """All that is allocated and freed within a step, by one moment or another."""

    def static_total(self) -> Floats:
        """Bytes that are the same at every moment but init."""
        total: Floats = sum(self.static.values(), np.zeros(1))
        return total

    def allocated(self) -> list[Floats]:
        """Allocated bytes by moment."""
        static = self.static_total()
        totals = []
        for number, parts in enumerate(self.moments):
            first, *rest = parts.values()
            total = first if number == 0 else static + first
            for part in rest:
                total = total + part
            totals.append(total)
        return totals


def footprint(
    work: StageWork, dense: Rates, expert: Rates | None, buffers: Buffers, gpu_bytes: float
) -> Footprint:
    """The footprint of one stage of every plan.

    dense, expert: bytes per parameter of either kind; None where there are no experts.
    gpu_bytes: what the GPU has for tensors.
    """

    def states(name: str) -> Floats:
        value: Floats = getattr(dense, name) * work.dense
        return value if expert is None else value + getattr(expert, name) * work.expert

    gradients = states("gradients")
    growing = states("gradients_growing")
    at_step = states("gradients_at_step")
    if buffers.reaching is not None:
        least = buffers.reaching * work.matrix
        growing, at_step = np.maximum(growing, least), np.maximum(at_step, least)
    step = states("step")
    if buffers.step_cap is not None:
        step = np.minimum(step, buffers.step_cap)
    weights = states("weights") + dense.frozen * work.frozen
    gathered = gathered_weights(work, buffers)
    backward = buffers.backward
    static = {
        "parameters": weights,
        "master": states("master"),
        "optimizer": states("optimizer"),
        "buckets": buffers.permanent,
    }
    if buffers.spare is not None:
        static["buckets"] = buffers.permanent + buffers.spare * work.matrix
    if buffers.secondary is not None:
        static["parameters"] = weights + buffers.secondary * work.params
    moments: tuple[Parts, ...] = (
        {"parameters": _init(work, buffers, weights, states, gpu_bytes)},
        {
            "working": work.at_loss,
            "gradients": gradients,
            "activations": work.activations,
            "logits": work.logits_peak,
        },
        {
            "working": work.in_layer,
            "gradients": gradients,
            "activations": work.activations,
            "logits": work.logits_kept,
            "buckets": backward,
        },
        {
            "working": work.at_end,
            "gradients": gradients + growing,
            "logits": work.logits_kept,
            "buckets": backward,
        },
        {
            "working": work.between,
            "gradients": at_step,
            "step_transients": step,
        },
        {"working": work.between, "gradients": states("gradients_kept")},
    )
    if work.oversized.any():
        moments[3]["gradients"] = moments[3]["gradients"] + work.oversized
    if buffers.sent is not None:
        copy = buffers.sent * np.minimum(buffers.sent_elements, work.params)
        moments[3]["buckets"] = backward + copy
    if buffers.at_loss is not None:
        moments[1]["buckets"] = buffers.at_loss
    if gathered is not None:
        for number, alive in zip((1, 2, 3), gathered, strict=True):
            moments[number]["gathered"] = alive
    passes = work.activations + np.maximum(
        work.logits_peak + work.logits_cached,
        work.in_layer - work.between + work.logits_kept,
    )
    cached = passes + growing + step + backward
    return Footprint(
        static=static,
        moments=moments,
        held=gradients + work.between,
        cached=cached if gathered is None else cached + gathered[1],
    )


def _init(
    work: StageWork,
    buffers: Buffers,
    weights: Floats,
    states: Callable[[str], Floats],
    gpu_bytes: float,
) -> Floats:
    """Bytes when the engine starts: weights, and flattening them or making the states.

    DeepSpeed flattens on the GPU only where it has room for a second copy (stage_1_and_2.py,
    flatten_on_accelerator). ZeRO-3 gathers the largest parameter once more beside its bucket.
    """
    with_room = states("flattened_with_room")
    flat = states("flattened") + np.where(weights + with_room <= gpu_bytes, with_room, 0.0)
    more = np.maximum(flat, states("init"))
    if buffers.permanent.any():
        master = states("master")
        gradient = states("gradients_kept") + buffers.permanent + buffers.element * work.matrix
        first = np.minimum(master, 4.0 * SUB_GROUP)  # an fp32 gradient of the largest sub-group
        gathered = master + np.maximum(gradient, first)
        more = np.maximum(more, np.where(buffers.permanent > 0, gathered, 0.0))
    return weights + more
