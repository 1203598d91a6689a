"""What one stage of each plan holds at each moment of a step, by category."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cost_model.memory.buffers import Buffers, gathered_weights
from cost_model.memory.states import Rates
from cost_model.memory.sub_groups import EXPERT_GROUP, SUB_GROUP
from cost_model.memory.sums import Plans, Sum, total
from cost_model.memory.work import StageWork
from cost_model.plans import Floats

MOMENTS = ("init", "loss", "layer", "backward_end", "step", "save")
"""When memory can peak: at start; at the loss; in the backward pass of the last layer, when all
activations are still there; at the end of the backward pass, when all gradients are; in the
optimizer's step; while a checkpoint is written."""

PHASE_OF_MOMENT = (0, 1, 1, 1, 2, 3)
"""Index into MEMORY_PHASES."""

Parts = dict[str, Sum]
"""Bytes by category; a category that is not there holds nothing."""


@dataclass(frozen=True)
class Footprint:
    """Bytes on one rank of a stage of each plan."""

    static: Parts
    """The same at every moment but init."""
    moments: tuple[Parts, ...]
    """What comes on top, by MOMENTS."""
    held: Sum
    """Gradients and workspaces held from step to step."""
    cached: Sum
    """All that is allocated and freed within a step, by one moment or another."""

    def static_total(self) -> Sum:
        """Bytes that are the same at every moment but init."""
        return total(self.static.values())

    def allocated(self, plans: Plans) -> Iterator[Floats]:
        """Allocated bytes by moment [plans], one after the other."""
        static = self.static_total()
        for number, parts in enumerate(self.moments):
            yield plans.bytes(total((static, *parts.values()) if number else parts.values()))


def footprint(
    plans: Plans,
    work: StageWork,
    dense: Rates,
    expert: Rates | None,
    buffers: Buffers,
    gpu_bytes: Floats | float,
) -> Footprint:
    """The footprint of one stage of every plan.

    dense, expert: bytes per parameter of either kind; None where there are no experts.
    gpu_bytes: what the GPU has for tensors, of all plans or of each [plans].
    """

    def states(name: str) -> Sum:
        rates = {"dense": getattr(dense, name)}
        if expert is not None:
            rates["expert"] = getattr(expert, name)
        return Sum(rates)

    gradients = states("gradients")
    growing = states("gradients_growing")
    at_step = states("gradients_at_step")
    if buffers.reaching is not None:
        least = plans.sharding(buffers.reaching) * plans.quantity("matrix")
        growing = Sum(plans=np.maximum(plans.bytes(growing), least))
        at_step = Sum(plans=np.maximum(plans.bytes(at_step), least))
    step = _step(plans, states("step"), dense, expert, buffers)
    weights = states("weights") + Sum({"frozen": dense.frozen})
    gathered = gathered_weights(plans, buffers)
    backward = Sum(sharding=buffers.backward)
    static = {
        "parameters": weights,
        "master": states("master"),
        "optimizer": states("optimizer") + Sum({"wide": dense.optimizer}),
        "buckets": Sum(sharding=buffers.permanent),
    }
    if buffers.spare is not None:
        static["buckets"] += Sum({"matrix": buffers.spare})
    if buffers.secondary is not None:
        static["parameters"] += Sum({"params": buffers.secondary})
    start = _init(plans, buffers, weights, states, gpu_bytes)
    between, kept = Sum(work=work.between), Sum(work=work.logits_kept)
    moments: tuple[Parts, ...] = (
        {"parameters": Sum(plans=start)},
        {
            "working": Sum(work=work.at_loss),
            "gradients": gradients,
            "activations": Sum(work=work.activations),
            "logits": Sum(work=work.logits_peak),
        },
        {
            "working": Sum(work=work.in_layer),
            "gradients": gradients,
            "activations": Sum(work=work.of_layers),
            "logits": kept,
            "buckets": backward,
        },
        {
            "working": Sum(work=work.at_end),
            "gradients": gradients + growing,
            "logits": kept,
            "buckets": backward,
        },
        {"working": between, "gradients": at_step, "step_transients": step},
        {"working": between, "gradients": states("gradients_kept")},
    )
    for name, more in _backward_end(plans, work, buffers, plans.bytes(growing)).items():
        moments[3][name] = moments[3].get(name, Sum()) + more
    if buffers.reducing is not None:
        part, later = states("gradients_at_step"), at_step + step
        whole = gradients + states("gradients_growing")
        moments[4]["buckets"] = _reducing(plans, buffers.reducing, whole, part, later)
    if buffers.at_loss is not None:
        moments[1]["buckets"] = Sum(sharding=buffers.at_loss)
    if gathered is not None:
        for number, alive in zip((1, 2, 3), gathered, strict=True):
            moments[number]["gathered"] = alive
    if buffers.loaded is not None:
        held = plans.quantity("frozen" if buffers.loads_frozen else "params")
        loaded = np.maximum(start, plans.sharding(buffers.loaded) * held)
        moments[0]["parameters"] = Sum(plans=loaded)
    passes = work.activations + np.maximum(
        work.logits_peak + work.logits_cached,
        work.in_layer - work.between + work.logits_kept,
    )
    cached = Sum(work=passes + work.gathers_cached) + growing + step + backward
    return Footprint(
        static=static,
        moments=moments,
        held=gradients + between,
        cached=cached if gathered is None else cached + gathered[1],
    )


def _backward_end(plans: Plans, work: StageWork, has: Buffers, part: Floats) -> Parts:
    """What is there beside whole layers' work when gradients are reduced, by category.

    part: bytes of gradients that this rank keeps [plans].
    """
    parts = {"gradients": Sum(work=work.oversized) if work.oversized.any() else Sum()}
    if has.waiting is not None:
        most = np.minimum(plans.sharding(has.waiting_elements), plans.quantity("params"))
        parts["gradients"] += Sum(plans=plans.sharding(has.waiting) * most)
    if has.sent is not None:
        most = np.minimum(plans.sharding(has.sent_elements), plans.quantity("params"))
        parts["buckets"] = Sum(plans=plans.sharding(has.sent) * most)
        parts["activations"] = Sum({"unsent": np.where(has.sent > 0, 1.0, 0.0)})
    if has.early is not None:
        left, copy = _first_bucket(plans, work, has, has.early, part)
        for name, more in (("activations", left), ("buckets", copy)):
            parts[name] = parts.get(name, Sum()) + Sum(plans=more)
    return parts


def _first_bucket(
    plans: Plans, work: StageWork, has: Buffers, early: Floats, part: Floats
) -> tuple[Floats, Floats]:
    """Activations that are left when ZeRO 1 and 2 reduce a first bucket, and what the bucket's copy
    takes beyond this rank's part and what is gone by then [plans].

    A bucket larger than a part holds several ranks' gradients, so the first one is copied, before
    any part is made. Else the first that crosses from one part to the next is, when the layers of
    the last rank's part are done.
    """
    total = len(plans.of_work)
    rows = np.flatnonzero(np.broadcast_to(plans.sharding(early), total))
    left, copy = np.zeros((2, total))

    def of(values: Floats) -> Floats:
        return values if len(values) == 1 else values.take(rows)

    mine = of(plans.quantity("unreduced"))
    if work.oversized.any():  # gradients that stay come one by one, as activations go
        mine = mine * (of(plans.bytes(Sum(work=work.oversized))) == 0)
    trained = of(plans.quantity("dense")) + of(plans.quantity("expert"))
    ranks = of(plans.sharding(has.ranks))
    bucket = np.minimum(of(plans.sharding(has.sent_elements)), trained)
    crosses = trained / ranks >= bucket
    gone: Floats = np.where(crosses, mine / ranks, of(part))
    left[rows] = mine
    copy[rows] = np.maximum(has.element * bucket - gone, 0.0) * (ranks > 1)
    return left, copy


def _step(plans: Plans, step: Sum, dense: Rates, expert: Rates | None, buffers: Buffers) -> Sum:
    """Transients of the optimizer, which updates a group or sub-group at a time."""
    if expert is not None and buffers.expert_cap is not None:
        # group after group: the dense parameters, then the experts
        apart = np.minimum(
            plans.bytes(Sum({"expert": expert.step})), plans.sharding(buffers.expert_cap)
        )
        together = plans.sharding(buffers.expert_cap) == np.inf
        rest = plans.bytes(Sum({"dense": dense.step}))
        step = Sum(plans=np.maximum(rest, apart) + together * np.minimum(rest, apart))
    if buffers.norm is not None:
        part = plans.quantity("dense") / plans.sharding(buffers.ranks)
        norm = plans.sharding(buffers.norm) * np.minimum(plans.quantity("matrix"), part)
        step = Sum(plans=np.maximum(plans.bytes(step), norm))
    if buffers.step_cap is not None:
        step = Sum(plans=np.minimum(plans.bytes(step), plans.sharding(buffers.step_cap)))
    return step


def _reducing(plans: Plans, buckets: Floats, whole: Sum, part: Sum, later: Sum) -> Sum:
    """What the reduction of whole gradients at the end of a pipeline's batch takes beyond the step.

    DeepSpeed's pipeline engine makes a bucket more, beside that of the backward passes
    (stage_1_and_2.py reduce_gradients), when every gradient is there. This rank's part is made when
    the first bucket is full, and what is in the bucket gone; or an embedding is larger than one.
    """
    two = plans.sharding(buckets)
    mine, matrix = plans.bytes(part), 2.0 * plans.quantity("matrix")
    beyond = np.where(matrix > two / 2, mine, np.maximum(mine - two / 2, 0.0))
    reduction = (plans.bytes(whole) + two + beyond) * (two > 0)
    return Sum(plans=np.maximum(reduction - plans.bytes(later), 0.0))


def _init(
    plans: Plans,
    buffers: Buffers,
    weights: Sum,
    states: Callable[[str], Sum],
    gpu_bytes: Floats | float,
) -> Floats:
    """Bytes when the engine starts [plans]: weights, and flattening them or making the states.

    DeepSpeed flattens on the GPU only where it has room for a second copy (stage_1_and_2.py,
    flatten_on_accelerator). ZeRO-3 gathers the largest parameter once more beside its bucket.
    """
    held = plans.bytes(weights)
    flattened = states("flattened_with_room")
    with_room = plans.bytes(flattened)
    if buffers.expert_cap is not None and "expert" in flattened.rates:
        # group after group: the dense parameters, then small groups of experts
        apart = np.isfinite(plans.sharding(buffers.expert_cap))
        experts = np.minimum(
            plans.bytes(Sum({"expert": flattened.rates["expert"]})),
            float(EXPERT_GROUP * buffers.element),
        )
        largest = np.maximum(plans.bytes(Sum({"dense": flattened.rates["dense"]})), experts)
        with_room = np.where(apart, largest, with_room)
    flat = plans.bytes(states("flattened")) + with_room * (held + with_room <= gpu_bytes)
    more = np.maximum(flat, plans.bytes(states("init")))
    if buffers.permanent.any():
        master = plans.bytes(states("master"))
        one = Sum(sharding=buffers.permanent) + Sum(
            {"matrix": buffers.permanent * 0 + buffers.element}
        )
        gradient = plans.bytes(states("gradients_kept") + one)
        first = np.minimum(master, 4.0 * SUB_GROUP)  # an fp32 gradient of the largest sub-group
        three = plans.sharding(buffers.permanent) > 0
        more = np.maximum(more, three * (master + np.maximum(gradient, first)))
    return held + more
