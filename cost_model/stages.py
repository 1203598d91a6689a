"""The slowest pipeline stage of each plan: what one micro-batch costs on it, by part."""

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from cost_model.calibration import Coefficients
from cost_model.calibration.columns import software_column
from cost_model.memory.groups import Groups, group_rows
from cost_model.memory.parameters import dense_per_layer
from cost_model.pipeline import divide
from cost_model.plans import Bools, Floats, Ints, PlanTable, Recompute, Software, any_of
from cost_model.shapes import Shapes, ShapeTimes
from cost_model.specs.model import ModelSpec
from cost_model.specs.training import TrainingSpec
from cost_model.traffic import hand_overs

_DIVISION = ("pp", "first_stage_layers", "last_stage_layers", "placement")
_REPEATED = ("recompute", "recompute_layers")


@dataclass(frozen=True)
class StageTimes:
    """Seconds per micro-batch of the slowest stage, and its load [divisions of shapes]."""

    groups: Groups
    """Which row each plan has."""
    slowest: Floats
    """Without the hand-over to the next stage."""
    total: Floats
    """One micro-batch through every stage that is looked at, likewise."""
    forward: Floats
    """Part of `slowest` before the backward pass, compute alone."""
    backward: Floats
    """The rest, recompute and traffic included."""
    compute: Floats
    recompute: Floats
    tp_comm: Floats
    sp_comm: Floats
    ep_comm: Floats
    hop: Floats
    """Handing one micro-batch on and its gradient back, nothing beside it."""
    overhead: Floats
    """Host time that the GPU waits for."""
    layers: Floats
    repeated: Floats
    """Share of the layers that full recompute repeats."""
    dense: Floats
    """Dense parameters of the rank with most."""
    expert: Floats
    tp_bytes: Floats
    sp_bytes: Floats
    ep_bytes: Floats
    hop_bytes: Floats


@dataclass(frozen=True)
class _LayerCost:
    """One layer of one kind [rows]."""

    forward: Floats
    backward: Floats
    again: Floats
    """Compute that full recompute repeats."""
    core: Floats
    """What selective recompute, or that of the feed-forward, repeats; zero for other plans."""
    tp_forward: Floats
    tp_backward: Floats
    sp_forward: Floats
    sp_backward: Floats
    ep_forward: Floats
    ep_backward: Floats
    host_forward: Floats
    host_backward: Floats
    tp_bytes: Floats
    sp_bytes: Floats
    ep_bytes: Floats
    dense: Floats
    expert: Floats
    runs_ahead: bool
    """Whether the host issues work while the device computes; a processor is both in one."""

    @property
    def gpu_forward(self) -> Floats:
        return self.forward + self.tp_forward + self.sp_forward + self.ep_forward

    def gpu_backward(self, repeated: Floats, partly: Floats) -> Floats:
        own = self.backward + self.tp_backward + self.sp_backward + self.ep_backward
        again = self.again + self.tp_forward + self.sp_forward + self.ep_forward
        return own + partly * self.core + repeated * again

    def idle(self, repeated: Floats, partly: Floats) -> Floats:
        """Host time beyond the GPU's, both passes; all of it where host and device are one."""
        host_backward = self.host_backward + repeated * self.host_forward
        if not self.runs_ahead:
            return self.host_forward + host_backward
        return np.maximum(self.host_forward - self.gpu_forward, 0.0) + np.maximum(
            host_backward - self.gpu_backward(repeated, partly), 0.0
        )

    def seconds(self, repeated: Floats, partly: Floats) -> Floats:
        """One layer, one micro-batch: the GPU's time or the host's, whichever is longer."""
        own = self.gpu_forward + self.gpu_backward(repeated, partly)
        return own + self.idle(repeated, partly)


def _layer_costs(
    model: ModelSpec,
    table: PlanTable,
    shapes: ShapeTimes,
    of_shape: Ints,
    known: Coefficients,
    selective: Bools,
    feed_forward: Bools,
    runs_ahead: bool,
) -> list[_LayerCost]:
    def spread(values: Floats) -> Floats:
        return values.take(of_shape)

    host_us = software_column(known, "host_us", table.software)
    back = software_column(known, "host_backward_ratio", table.software)
    comm_us = software_column(known, "comm_host_us", table.software)
    zero3 = software_column(known, "zero3_host_us", table.software) * (table.zero_stage == 3)
    tp = table.tp.astype(float)
    copied = software_column(known, "tp_traffic_ratio", table.software)
    # Megatron's checkpoint of the feed-forward repeats its traffic, half of a layer's, too
    again = 0.5 * any_of(table.software, Software.MEGATRON)
    costs = []
    for kind, times, traffic in zip(model.kinds, shapes.layers, shapes.traffic, strict=True):
        issued = spread(times.operators) * host_us
        sent = spread(traffic.collectives) * comm_us + zero3
        tp_forward = copied * spread(traffic.tp_forward)
        costs.append(
            _LayerCost(
                forward=spread(times.forward),
                backward=spread(times.backward),
                again=spread(times.again_forward),
                core=spread(times.core_forward) * selective
                + (spread(times.mlp_forward) + again * tp_forward) * feed_forward,
                tp_forward=tp_forward,
                tp_backward=copied * spread(traffic.tp_backward),
                sp_forward=spread(traffic.sp_forward),
                sp_backward=spread(traffic.sp_backward),
                ep_forward=spread(traffic.ep_forward),
                ep_backward=spread(traffic.ep_backward),
                host_forward=(issued + sent) * 1e-6,
                host_backward=(issued * back + sent) * 1e-6,
                tp_bytes=spread(traffic.tp_bytes),
                sp_bytes=spread(traffic.sp_bytes),
                ep_bytes=spread(traffic.ep_bytes),
                dense=dense_per_layer(kind, tp),
                expert=kind.expert_params / (tp * table.ep),
                runs_ahead=runs_ahead,
            )
        )
    return costs


def repeated_share(table: PlanTable, layers: Floats) -> tuple[Floats, Floats]:
    """Shares of a stage's layers that recompute repeats whole, and in part [plans]."""
    some = np.minimum(table.recompute_layers, layers) / np.maximum(layers, 1.0)
    share = np.where(table.recompute_layers < 0, 1.0, some)
    whole = np.where(table.recompute == int(Recompute.FULL), share, 0.0)
    return whole, np.where(table.recompute == int(Recompute.MLP), share, 1.0)


def stage_times(
    model: ModelSpec,
    training: TrainingSpec,
    plans: PlanTable,
    shapes: Shapes,
    known: Coefficients,
    differs: Container[str],
    runs_ahead: bool = True,
    node_group: int | None = None,
) -> StageTimes:
    """The slowest stage of each distinct division of the model into stages of a shape.

    Every stage adds its layers to what sits at the ends: the embedding on the first, the head on
    the last, which for a large vocabulary makes the last stage the slow one. runs_ahead: whether
    the host issues work while the device computes. node_group: number of the group of nodes whose
    stages alone are looked at; None looks at all.
    """
    shape = (shapes.of_row,) if shapes.distinct > 1 else ()
    sharded = (plans.zero_stage == 3,) if "zero_stage" in differs else ()
    groups = group_rows(plans, (*_DIVISION, *_REPEATED), differs, *shape, *sharded)
    table = plans.take(groups.first)
    rows = len(table)
    of_shape, times = shapes.of_row.take(groups.first), shapes.times

    def spread(values: Floats) -> Floats:
        return values.take(of_shape)

    writes_scores = training.attention in ("eager", "fused_softmax")
    selective = (table.recompute == int(Recompute.SELECTIVE)) & writes_scores
    feed_forward = table.recompute == int(Recompute.MLP)
    costs = _layer_costs(model, table, times, of_shape, known, selective, feed_forward, runs_ahead)
    embedding = spread(times.edges.embedding)
    head_forward = spread(times.edges.head_forward)
    head = head_forward + spread(times.edges.head_backward)
    embedding_comm, head_comm = spread(times.embedding_comm), spread(times.head_comm)

    divisions = group_rows(table, _DIVISION, differs)
    picked = (getattr(table, name).take(divisions.first).tolist() for name in _DIVISION)
    stages = divide(model, zip(*picked, strict=True), node_group)
    slowest, total = np.full(rows, -1.0), np.zeros(rows)
    best = np.zeros(rows, np.int64)
    dense, expert = np.zeros(rows), np.zeros(rows)
    for profile in range(stages.first.shape[1]):
        counts = [stages.layers[:, profile, k].take(divisions.of_row) for k in range(len(costs))]
        first = stages.first[:, profile].take(divisions.of_row)
        last = stages.last[:, profile].take(divisions.of_row)
        present = stages.stages[:, profile].take(divisions.of_row)
        repeated, partly = repeated_share(table, np.sum(counts, 0))
        seconds = first * (embedding + embedding_comm) + last * (head + head_comm)
        held = (first * model.embedding_params + last * model.head_params) / table.tp
        routed = np.zeros(rows)
        for cost, count in zip(costs, counts, strict=True):
            seconds = seconds + count * cost.seconds(repeated, partly)
            held = held + count * cost.dense
            routed = routed + count * cost.expert
        total += present * seconds
        best = np.where((seconds > slowest) & (present > 0), profile, best)
        slowest = np.where(present > 0, np.maximum(slowest, seconds), slowest)
        dense = np.where(present > 0, np.maximum(dense, held), dense)
        expert = np.where(present > 0, np.maximum(expert, routed), expert)

    where = divisions.of_row
    first, last = stages.first[where, best], stages.last[where, best]
    counts = [stages.layers[where, best, k] for k in range(len(costs))]
    layers = np.sum(counts, 0)
    repeated, partly = repeated_share(table, layers)
    again = 1.0 + repeated

    def over_layers(term: list[Floats]) -> Floats:
        out = np.zeros(rows)
        for count, value in zip(counts, term, strict=True):
            out = out + count * value
        return out

    forward = over_layers([c.forward for c in costs])
    compute_forward = forward + last * head_forward + first * 0.25 * embedding
    return StageTimes(
        groups=groups,
        slowest=slowest,
        total=total,
        forward=compute_forward,
        backward=np.maximum(slowest - compute_forward, 0.0),
        compute=forward
        + over_layers([c.backward for c in costs])
        + first * embedding
        + last * head,
        recompute=over_layers([repeated * c.again + partly * c.core for c in costs]),
        tp_comm=over_layers([again * c.tp_forward + c.tp_backward for c in costs])
        + first * embedding_comm
        + last * head_comm,
        sp_comm=over_layers([again * c.sp_forward + c.sp_backward for c in costs]),
        ep_comm=over_layers([again * c.ep_forward + c.ep_backward for c in costs]),
        hop=hand_overs(table) * spread(times.hop),
        overhead=over_layers([c.idle(repeated, partly) for c in costs]),
        layers=layers,
        repeated=repeated,
        dense=dense,
        expert=expert,
        tp_bytes=over_layers([(1.0 + again) * c.tp_bytes for c in costs]),
        sp_bytes=over_layers([(1.0 + again) * c.sp_bytes for c in costs]),
        ep_bytes=over_layers([(1.0 + again) * c.ep_bytes for c in costs]),
        hop_bytes=2.0 * spread(times.hop_bytes),
    )
