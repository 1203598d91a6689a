"""A plan (every knob of a run) and a table of plans (columns of equal length)."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_serializer, field_validator

from cost_model.placement import Placement
from cost_model.specs.frozen import MOST_COUNT, Frozen

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class _Named(IntEnum):
    """An enum whose JSON is its lower-case name and whose column is its number."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Accepts the member, its number or its name."""
        if isinstance(value, str):
            try:
                return cls[value.upper()]
            except KeyError:
                raise ValueError(cls._wanted(value)) from None
        if not isinstance(value, int | np.integer):
            raise ValueError(cls._wanted(value))
        return cls(int(value))

    @classmethod
    def _wanted(cls, value: object) -> str:
        names = ", ".join(m.name.lower() for m in cls)
        return f"must be one of {names}; got {value!r}"


class Software(_Named):
    """Which training software runs the plan. Each holds other buffers and has other rules."""

    DEEPSPEED = 0  # DeepSpeed engine around a Hugging Face model: ZeRO, AutoTP, Ulysses, native MoE
    DEEPSPEED_PIPELINE = 1  # DeepSpeed PipelineModule
    MEGATRON_DEEPSPEED = 2  # Megatron-DeepSpeed: TP x PP x DP, ZeRO 0/1
    MEGATRON = 3  # Megatron-LM / Megatron-Core / NeMo
    FSDP = 4  # PyTorch FSDP, MosaicML, torchtitan


def any_of(software: Ints, *kinds: Software) -> Bools:
    """Whether each row's software is one of these [rows]."""
    found: Bools = software == int(kinds[0])  # NumPy is slow to see that a member is a number
    for other in kinds[1:]:
        found |= software == int(other)
    return found


class Recompute(_Named):
    """Which activations are recomputed in the backward pass."""

    NONE = 0
    SELECTIVE = 1  # attention scores only (arXiv 2205.05198, section 5)
    FULL = 2  # only each recomputed layer's input is kept
    MLP = 3  # the feed-forward of each layer: the module that saves most bytes per FLOP


class Offload(_Named):
    """Where states that are not on the GPU live."""

    NONE = 0
    CPU = 1
    NVME = 2


BLOCK = 32_768
"""Plans evaluated at once: large enough to amortise NumPy's calls, small enough for the cache."""

MOST_RANKS = MOST_COUNT
"""Largest degree: products of a few of them stay within the 64 bits of a column."""

MOST_ELEMENTS = 2**40
"""Largest bucket, in elements."""

_ENUMS: dict[str, type[_Named]] = {
    "software": Software,
    "recompute": Recompute,
    "offload_optimizer": Offload,
    "offload_param": Offload,
}


class Plan(Frozen):
    """Every knob of one run, fixed. Defaults are DeepSpeed's own where it has one."""

    software: Software = Software.DEEPSPEED
    nodes: int = Field(default=1, ge=1, le=MOST_RANKS)
    """Nodes used; world size is tp x pp x dp x sp x cp."""
    tp: int = Field(default=1, ge=1, le=MOST_RANKS)
    sequence_parallel: bool = False
    """Norms and residuals sharded by sequence over the TP group (arXiv 2205.05198)."""
    pp: int = Field(default=1, ge=1, le=MOST_RANKS)
    vpp: int = Field(default=1, ge=1, le=MOST_RANKS)
    """Model chunks per pipeline rank (interleaved schedule)."""
    first_stage_layers: int = Field(default=0, ge=0, le=MOST_RANKS)
    """Layers of the first stage; 0 divides evenly, earlier stages taking the remainder."""
    last_stage_layers: int = Field(default=0, ge=0, le=MOST_RANKS)
    placement: Placement = Placement(0)
    """Stages and layers on each group of different nodes, such as "4x40": 40 layers on 4 stages of
    the first group, the rest on the second. Empty: all nodes count as equal."""
    dp: int = Field(default=1, ge=1, le=MOST_RANKS)
    """Replicas that see different sequences. ZeRO shards over dp x sp x cp."""
    sp: int = Field(default=1, ge=1, le=MOST_RANKS)
    """Ulysses sequence-parallel degree."""
    cp: int = Field(default=1, ge=1, le=MOST_RANKS)
    """Context-parallel degree: ring attention, or cp_all_gather."""
    ep: int = Field(default=1, ge=1, le=MOST_RANKS)
    """Expert-parallel degree, laid over the data-parallel ranks."""
    zero_stage: int = Field(default=0, ge=0, le=3)
    hpz: int = Field(default=1, ge=1, le=MOST_RANKS)
    """ZeRO++ secondary partition size; 1 is off."""
    quantized_weights: bool = False
    quantized_gradients: bool = False
    micro_batch: int = Field(default=1, ge=1, le=MOST_RANKS)
    grad_accum: int = Field(default=1, ge=1, le=MOST_RANKS)
    """Micro-batches per optimizer step and data-parallel rank (pipeline: those in the pipe)."""
    recompute: Recompute = Recompute.NONE
    recompute_layers: int = Field(default=-1, ge=-1, le=MOST_RANKS)
    """How many layers of each stage are recomputed; -1 is all."""
    partition_activations: bool = False
    cpu_checkpointing: bool = False
    offload_optimizer: Offload = Offload.NONE
    offload_param: Offload = Offload.NONE
    offload_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of the optimizer that is offloaded (ZeRO-3 only)."""
    reduce_bucket: int = Field(default=500_000_000, ge=1, le=MOST_ELEMENTS)
    """Elements."""
    allgather_bucket: int = Field(default=500_000_000, ge=1, le=MOST_ELEMENTS)
    """Elements (ZeRO 1 and 2)."""
    prefetch_bucket: int = Field(default=50_000_000, ge=0, le=MOST_ELEMENTS)
    """Elements (ZeRO 3)."""
    max_live_params: int = Field(default=1_000_000_000, ge=0, le=MOST_ELEMENTS)
    """Elements (ZeRO 3)."""
    persistence_threshold: int = Field(default=100_000, ge=0, le=MOST_ELEMENTS)
    """Elements below which ZeRO 3 keeps a parameter whole."""
    overlap_comm: bool = True
    chunked_loss: bool = False
    """Loss computed in chunks or fused with the head: the fp32 logits never exist whole."""
    compile: bool = False
    capacity_factor: float = Field(default=0.0, ge=0, le=1e6)
    """MoE: tokens an expert takes over its fair share; 0 is dropless."""
    cp_all_gather: bool = False
    """Context parallelism gathers keys and values before attention instead of passing them round
    (arXiv 2407.21783, section 3.3.2)."""
    tp_overlap: bool = False
    """Tensor-parallel gathers and scatters run chunk by chunk beside their products (Transformer
    Engine under Megatron, --tp-comm-overlap; needs sequence_parallel)."""
    split_hand_over: bool = True
    """What a pipeline stage hands on is split over the TP ranks and gathered by the next stage
    (DeepSpeed's pipe_partitioned and grad_partitioned, Megatron's scatter-gather)."""
    comm_16bit: bool = False
    """Gradients that are kept in fp32 cross the wire in 16 bits (communication_data_type)."""

    @field_validator(*_ENUMS, mode="before")
    @classmethod
    def _parse_enum(cls, value: object, info: Any) -> object:
        return _ENUMS[info.field_name].parse(value)

    @field_serializer(*_ENUMS)
    def _enum_name(self, value: _Named) -> str:
        return value.name.lower()

    @property
    def world_size(self) -> int:
        """Ranks of the run."""
        return self.tp * self.pp * self.dp * self.sp * self.cp

    @property
    def global_batch(self) -> int:
        """Sequences per optimizer step."""
        return self.micro_batch * self.grad_accum * self.dp


_DTYPES = {bool: np.bool_, float: np.float64}


@dataclass(frozen=True, eq=False, init=False)
class PlanTable:
    """Columns of plans; every column has the same length. Names and meanings are those of Plan.

    A column of one value alone may be that value seen many times (a stride of 0): it takes no
    memory, and is picked and looked through for free.
    """

    software: Ints
    nodes: Ints
    tp: Ints
    sequence_parallel: Bools
    pp: Ints
    vpp: Ints
    first_stage_layers: Ints
    last_stage_layers: Ints
    placement: Ints
    dp: Ints
    sp: Ints
    cp: Ints
    ep: Ints
    zero_stage: Ints
    hpz: Ints
    quantized_weights: Bools
    quantized_gradients: Bools
    micro_batch: Ints
    grad_accum: Ints
    recompute: Ints
    recompute_layers: Ints
    partition_activations: Bools
    cpu_checkpointing: Bools
    offload_optimizer: Ints
    offload_param: Ints
    offload_ratio: Floats
    reduce_bucket: Ints
    allgather_bucket: Ints
    prefetch_bucket: Ints
    max_live_params: Ints
    persistence_threshold: Ints
    overlap_comm: Bools
    chunked_loss: Bools
    compile: Bools
    capacity_factor: Floats
    cp_all_gather: Bools
    tp_overlap: Bools
    split_hand_over: Bools
    comm_16bit: Bools

    def __init__(self, **columns: npt.NDArray[Any]) -> None:
        if len(columns) != len(COLUMNS):
            raise TypeError(f"not the columns of a plan: {', '.join(sorted(columns))}")
        self.__dict__.update(columns)

    def __len__(self) -> int:
        return len(self.tp)

    @cached_property
    def world_size(self) -> Ints:
        """Ranks of each plan."""
        return self.tp * self.pp * self.dp * self.sp * self.cp

    @cached_property
    def zero_group(self) -> Ints:
        """Ranks over which ZeRO shards states: dp x sp x cp."""
        return self.dp * self.sp * self.cp

    @cached_property
    def digits(self) -> dict[str, tuple[Ints, int]]:
        """Columns as they were numbered when rows were grouped by them (memory/groups.py)."""
        return {}

    @cached_property
    def pipelined(self) -> Bools:
        """Whether each plan runs in DeepSpeed's pipeline engine, which overlaps no reduction."""
        megatron = any_of(self.software, Software.MEGATRON_DEEPSPEED) & (self.pp > 1)
        found: Bools = megatron | any_of(self.software, Software.DEEPSPEED_PIPELINE)
        return found

    @cached_property
    def varying(self) -> frozenset[str]:
        """Names of the columns that do not hold one value alone."""
        return frozenset(name for name in COLUMNS if _varies(self.__dict__[name]))

    @classmethod
    def from_columns(cls, length: int, **columns: npt.ArrayLike) -> Self:
        """A table of `length` plans; scalars are broadcast, missing columns take Plan's default."""
        unknown = columns.keys() - COLUMNS.keys()
        if unknown:
            raise TypeError(f"no such column: {', '.join(sorted(unknown))}")
        out: dict[str, npt.NDArray[Any]] = {}
        for name, default in COLUMNS.items():
            value = np.asarray(columns.get(name, default), default.dtype)
            whole = value.shape == (length,)
            out[name] = value if whole else repeated(value.reshape(1), length)
        return cls(**out)

    @classmethod
    def from_plans(cls, plans: Iterable[Plan]) -> Self:
        """A table with one row per plan."""
        rows = list(plans)
        columns = {name: [getattr(p, name) for p in rows] for name in COLUMNS}
        return cls.from_columns(len(rows), **columns)

    def plan(self, row: int) -> Plan:
        """Row `row` as a Plan."""
        return Plan(**{name: self.__dict__[name][row].item() for name in COLUMNS})

    def plans(self) -> list[Plan]:
        """All rows as Plans. They are not checked again: every column was where it came from."""
        columns = [
            [_KINDS[name](value) for value in getattr(self, name).tolist()]
            if name in _KINDS
            else getattr(self, name).tolist()
            for name in COLUMNS
        ]
        return [
            _PLAIN.model_copy(update=dict(zip(COLUMNS, row, strict=True)))
            for row in zip(*columns, strict=True)
        ]

    def take(self, rows: npt.NDArray[Any] | slice) -> Self:
        """The rows picked by an index array, a mask or a slice."""
        own = self.__dict__
        if isinstance(rows, slice):
            return type(self)(**{name: own[name][rows] for name in COLUMNS})
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        count, longer = len(rows), len(rows) > len(self)
        picked: dict[str, npt.NDArray[Any]] = {}
        for name in COLUMNS:
            column: npt.NDArray[Any] = own[name]
            if column.strides[0]:
                picked[name] = column.take(rows)
            else:
                picked[name] = repeated(column[:1], count) if longer else column[:count]
        return type(self)(**picked)


def repeated(one: npt.NDArray[Any], times: int) -> npt.NDArray[Any]:
    """An array of one element, seen so many times."""
    return np.ndarray((times,), one.dtype, one, strides=(0,))


def _varies(column: npt.NDArray[Any]) -> bool:
    if not column.strides[0] or not len(column):
        return False
    first = column[0]
    ends = first != column[-1] or first != column[len(column) // 2]  # seen without a pass
    return bool(ends or (column != first).any())


def _column(default: object, kind: Any) -> npt.NDArray[Any]:
    column: npt.NDArray[Any] = np.array([default], _DTYPES.get(kind, np.int64))
    column.flags.writeable = False
    return column


_PLAIN = Plan()

_KINDS: dict[str, type[int]] = {**_ENUMS, "placement": Placement}
"""Columns whose values are no plain numbers in a plan."""

COLUMNS = {name: _column(info.default, info.annotation) for name, info in Plan.model_fields.items()}
"""The columns of a table in order, each with one element, its default."""
