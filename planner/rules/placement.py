"""Rules of clusters whose groups of nodes differ: which stages may lie where."""

import numpy as np

from cost_model.memory.over_groups import placed
from cost_model.placement import Placed, Placement
from cost_model.plans import Bools, Plan, PlanTable, Software
from planner.rules.columns import is_software
from planner.rules.rule import Rule, World


def _columns(world: World, table: PlanTable) -> Placed:
    groups = len(world.cluster.groups)
    return Placed.of(table.placement, table.pp, world.model.layers, groups)


def _fills_groups(world: World, table: PlanTable) -> Bools:
    none: Bools = table.placement == 0
    if none.all():
        return none
    legal = placed(world.cluster, world.model.layers, table)
    width = table.world_size // table.pp
    stages = _columns(world, table).stages
    for group, count in zip(world.cluster.groups, stages, strict=True):
        ranks = count * width
        legal &= (ranks <= group.gpus) & (ranks % group.node.gpus_per_node == 0)
    return none | legal


def _fills_message(world: World, plan: Plan) -> str:
    groups = world.cluster.groups
    if not groups:
        return f"placement {plan.placement}, and all nodes of the cluster are equal; leave it out"
    width = plan.world_size // plan.pp
    told = " and ".join(f"{g.gpus} GPUs of {g.name}" for g in groups)
    return (
        f"placement {plan.placement} of pp={plan.pp} with stages of {width} GPUs and "
        f"{world.model.layers} layers does not fill nodes of {told}, a layer a stage at least"
    )


def _told_of_placement(world: World, table: PlanTable) -> Bools:
    none: Bools = table.placement == 0
    if none.all():
        return none
    free = is_software(table, Software.DEEPSPEED_PIPELINE, Software.MEGATRON) & (table.vpp == 1)
    held = _columns(world, table)
    even = is_software(table, Software.MEGATRON_DEEPSPEED) & (table.pp > 1)
    for stages, layers in zip(held.stages, held.layers, strict=True):
        even &= layers * table.pp == world.model.layers * stages
    kept: Bools = none | free | even
    return kept


def _all_nodes(world: World, table: PlanTable) -> Bools:
    if not world.cluster.groups:
        return np.ones(len(table), np.bool_)
    kept: Bools = (table.placement > 0) | (table.nodes == world.cluster.nodes)
    return kept


RULES = (
    Rule(
        "placement-groups",
        "planner",
        "Where groups of nodes differ, stages lie on one group each: every group of the cluster "
        "has some, with a layer each, and they fill nodes.",
        ("placement", "tp", "pp", "dp", "sp", "cp"),
        _fills_groups,
        _fills_message,
        "ranks are numbered stage by stage over the host list (runtime/pipe/topology.py)",
    ),
    Rule(
        "placement-software",
        "planner",
        "Stages of unequal layers on unequal nodes are told to Megatron (a pipeline layout, not "
        "interleaved) or to a PipelineModule of one's own; Megatron-DeepSpeed cuts evenly.",
        ("software", "placement", "pp", "vpp"),
        _told_of_placement,
        lambda w, p: (
            f"placement {p.placement} with {p.software.name.lower()} and vpp={p.vpp}; use "
            "deepspeed_pipeline, or megatron with vpp=1"
        ),
        "Megatron --pipeline-model-parallel-layout; DeepSpeed: parts of one's own",
    ),
    Rule(
        "placement-nodes",
        "planner",
        "Where all nodes of several groups count as equal, all of them are used: fewer are another "
        "choice of groups.",
        ("placement", "nodes"),
        _all_nodes,
        lambda w, p: f"{p.nodes} of {w.cluster.nodes} nodes of unequal groups without a placement",
        "a duplicate of another choice of groups",
    ),
)


def ends_fit(world: World, table: PlanTable) -> Bools:
    """Whether layers given for the first and last stage leave every other stage of their group one
    [plans]."""
    fits = np.ones(len(table), np.bool_)
    for row in np.flatnonzero(table.placement > 0).tolist():
        placement, pp = Placement(int(table.placement[row])), int(table.pp[row])
        groups = placement.groups(pp, world.model.layers)
        ends = ((groups[0], table.first_stage_layers), (groups[-1], table.last_stage_layers))
        for (stages, layers), given in ends:
            size = int(given[row])
            fits[row] &= size == 0 or (
                size == layers if stages == 1 else layers - size >= stages - 1
            )
    return fits
