"""The values each column may take, by software: what the space is the product of."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_model.plans import Offload, Plan, Recompute, Software
from planner.request.search import Limit, SearchOptions
from planner.rules import World
from planner.rules.combination import RECOMPUTES_MODULES
from planner.rules.states import gradient_wire_bytes
from planner.space.fine import HELD, SOLVED, held_value
from planner.space.placements import PLACED
from planner.space.splits import TAKES_SPLITS

SPLIT = "split"
"""No column but the number of a division into stages, from which their layers follow."""

PLACEMENT = "placement"
"""Where the cluster has groups of different nodes: how the stages lie on them, if they do."""

STRUCTURE = (
    *("tp", "pp", "sp", "cp", "cp_all_gather", "dp", "ep"),
    *("sequence_parallel", "vpp", SPLIT, PLACEMENT),
)
"""Axes that lay ranks out; together with the states they bound memory from below."""

STATES = (
    "zero_stage",
    "offload_optimizer",
    "offload_param",
    "hpz",
    "quantized_weights",
    "quantized_gradients",
    "comm_16bit",
)
"""Columns that decide where parameters, gradients and optimizer states live."""

ACTIVATIONS = (
    "micro_batch",
    "recompute",
    "partition_activations",
    "cpu_checkpointing",
    "chunked_loss",
    "compile",
    "capacity_factor",
)
"""Columns that decide what is kept for the backward pass."""

AXES = (*STRUCTURE, *STATES, *ACTIVATIONS)
DERIVED = ("nodes", "grad_accum", "first_stage_layers", "last_stage_layers")
"""nodes follows from the world size, grad_accum from the batch triple, layers from the split."""

SMALL_PP = 16
"""Up to here every number of pipeline stages is tried: a head can make any of them the best."""

STAGE_LAYERS = ("first_stage_layers", "last_stage_layers")

CAPACITIES = (1.0, 1.25, 1.5, 2.0)
"""Capacity factors worth having: GShard's and Switch Transformer's (arXiv 2101.03961, table 1)."""


@dataclass(frozen=True)
class Axes:
    """The values of every axis for one software, and what else is held fixed."""

    software: Software
    values: dict[str, npt.NDArray[Any]]
    """int64, capacity factors float64."""
    fixed: dict[str, float]
    """Columns outside the axes that the request fixes."""
    bounds: dict[str, Limit]
    """Limits of the derived columns."""
    even_stages: bool = False
    """Whether stages on groups of different nodes must have equal numbers of layers."""

    @property
    def combinations(self) -> int:
        """Size of the full product."""
        return int(np.prod([len(v) for v in self.values.values()], dtype=np.float64))


def divisors(n: int, most: int | None = None) -> list[int]:
    """Divisors of n in rising order, up to `most`."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    both = sorted({*small, *(n // d for d in small)})
    return both if most is None else [d for d in both if d <= most]


def _gcd(sizes: tuple[int, ...]) -> int:
    return int(np.gcd.reduce([*sizes, 0])) or 1


def stage_counts(layers: int, per_node: int, pinned: int | None, nodes: int) -> list[int]:
    """Pipeline stages worth having on up to `nodes` nodes of `per_node` GPUs.

    All up to SMALL_PP, the powers of two, and every count whose longest stage has fewer layers than
    that of any smaller count: the others have no faster stage, and more of them. So a larger
    cluster offers whatever a smaller one does. Where the nodes are pinned their GPUs must come out
    exactly, and the divisors of their number join.
    """
    longest = -(-layers // np.arange(1, layers + 1))
    counts = {i + 1 for i in np.flatnonzero(np.diff(longest, prepend=layers + 1)).tolist()}
    counts |= {*range(1, SMALL_PP + 1), *(2**k for k in range(layers.bit_length()))}
    if pinned is not None:
        counts |= {*divisors(pinned * per_node, layers)}
    gpus = (nodes if pinned is None else pinned) * per_node
    return sorted(pp for pp in counts if pp <= layers and math.lcm(pp, per_node) <= gpus)


def _pinned_nodes(world: World, search: SearchOptions) -> int | None:
    """The number of nodes that a plan must use, where the request leaves no choice."""
    if "nodes" in search.fixed:
        return int(search.fixed["nodes"])
    return None if search.allow.fewer_nodes else world.cluster.nodes


def _structure(world: World, search: SearchOptions, software: Software) -> dict[str, list[int]]:
    allow, gpus = search.allow, world.cluster.gpus
    per_node, layers = world.cluster.node.gpus_per_node, world.model.layers
    megatron = software in {Software.MEGATRON, Software.MEGATRON_DEEPSPEED}
    pipelines = megatron or software == Software.DEEPSPEED_PIPELINE
    tp_max = gpus if allow.tp_across_nodes else per_node
    tp_from = gpus if allow.tp_across_nodes else per_node
    stages = stage_counts(layers, per_node, _pinned_nodes(world, search), world.cluster.nodes)
    interleaves = software == Software.MEGATRON and allow.vpp and layers > 1
    moe = world.model.is_moe and allow.ep
    context = software in {Software.MEGATRON, Software.FSDP} and allow.cp
    return {
        "tp": divisors(tp_from, tp_max)
        if allow.tp and software != Software.DEEPSPEED_PIPELINE
        else [1],
        "pp": stages if allow.pp and pipelines else [1],
        "sp": divisors(_gcd(world.heads), gpus)
        if allow.sp and software == Software.DEEPSPEED
        else [1],
        "cp": [2**k for k in range(gpus.bit_length()) if 2**k <= gpus] if context else [1],
        "cp_all_gather": [0, 1] if context and gpus > 1 else [0],
        "dp": divisors(world.training.global_batch, gpus),
        "ep": divisors(_gcd(world.experts), gpus) if moe else [1],
        "sequence_parallel": [0, 1] if megatron and allow.sequence_parallel else [0],
        "vpp": divisors(layers, 16) if interleaves else [1],
        SPLIT: [0, 1] if allow.pp and allow.uneven_stages and software in TAKES_SPLITS else [0],
        PLACEMENT: [0, PLACED] if allow.pp and pipelines and world.cluster.groups else [0],
    }


def _states(world: World, search: SearchOptions, software: Software) -> dict[str, list[int]]:
    allow, node = search.allow, world.cluster.node
    engine = software == Software.DEEPSPEED
    top = {Software.DEEPSPEED: 3, Software.FSDP: 3}.get(software, 1)
    stages = list(range(top + 1)) if allow.zero else [0]
    places = [int(Offload.NONE)]
    if allow.offload and software not in {Software.MEGATRON, Software.FSDP}:
        places.append(int(Offload.CPU))
        if allow.nvme and node.nvme is not None and engine:
            places.append(int(Offload.NVME))
    several_nodes = world.cluster.nodes > 1
    hpz = {1}
    if engine and allow.hpz and several_nodes:
        hpz |= {node.gpus_per_node, node.link.nvlink_group or 1}
    wide = gradient_wire_bytes(world, software) > 2
    quantized = engine and allow.compression and several_nodes
    return {
        "zero_stage": stages,
        "offload_optimizer": places,
        "offload_param": places if engine else [0],
        "hpz": sorted(hpz),
        "quantized_weights": [0, 1] if quantized else [0],
        "quantized_gradients": [0, 1] if quantized else [0],
        "comm_16bit": [0, 1] if wide and allow.compression else [0],
    }


def _activations(world: World, search: SearchOptions, software: Software) -> dict[str, list[Any]]:
    allow = search.allow
    kept_scores = world.training.attention in {"eager", "fused_softmax"}
    megatron = software in {Software.MEGATRON, Software.MEGATRON_DEEPSPEED}
    modes = [int(Recompute.NONE)]
    if allow.recompute:
        modes += [int(Recompute.SELECTIVE)] if kept_scores and megatron else []
        modes += [int(Recompute.FULL)]
        modes += [int(Recompute.MLP)] if software in RECOMPUTES_MODULES else []
    partition = allow.recompute and software == Software.MEGATRON_DEEPSPEED
    hugging_face = software in {Software.DEEPSPEED, Software.FSDP}
    drops = allow.token_dropping and world.model.is_moe and software != Software.FSDP
    return {
        "micro_batch": divisors(world.training.global_batch),
        "recompute": modes,
        "partition_activations": [0, 1] if partition else [0],
        "cpu_checkpointing": [0, 1] if partition and allow.offload else [0],
        "chunked_loss": [0, 1] if allow.chunked_loss and hugging_face else [0],
        "compile": [0, 1] if allow.compile and hugging_face else [0],
        "capacity_factor": [0, *CAPACITIES] if drops else [0],
    }


def axes(world: World, search: SearchOptions, software: Software) -> Axes:
    """The axes of one software within the limits of the request.

    A fixed value replaces the axis, even where the axis would not have offered it.
    """
    values: dict[str, list[Any]] = {
        **_structure(world, search, software),
        **_states(world, search, software),
        **_activations(world, search, software),
    }
    bounds: dict[str, Limit] = {}
    fixed: dict[str, float] = {}
    for name, value in search.fixed.items():
        if name in values:
            values[name] = [value if isinstance(value, float) else int(value)]
        elif name in STAGE_LAYERS:
            values[SPLIT], fixed[name] = [0], value
        elif name in DERIVED:
            bounds[name] = Limit(values=(int(value),))
        elif name != "software":
            fixed[name] = value
    for name, limit in search.limits.items():
        if name in values:
            values[name] = [v for v in values[name] if limit.holds(v)]
        elif name in DERIVED and name not in fixed:
            old = bounds.get(name)
            bounds[name] = limit if old is None else old.and_also(limit)
        elif name in (*SOLVED, *HELD) and name not in fixed:
            fixed[name] = held_value(name, search)
        elif not limit.holds(int(fixed.get(name, Plan.model_fields[name].default))):
            values["tp"] = []
    if not search.allow.fewer_nodes:
        all_nodes = Limit(values=(world.cluster.nodes,))
        old = bounds.get("nodes")
        bounds["nodes"] = all_nodes if old is None else old.and_also(all_nodes)
    floats = {"capacity_factor": np.float64}
    arrays = {name: np.array(v, floats.get(name, np.int64)) for name, v in values.items()}
    return Axes(software, arrays, fixed, bounds, not search.allow.uneven_stages)


def software_allowed(search: SearchOptions) -> tuple[Software, ...]:
    """The software of the request, less what `fixed` excludes."""
    only = search.fixed.get("software")
    return tuple(s for s in search.software if only is None or s == only)
