"""The search part of a request: what to optimise, within which bounds."""

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, field_serializer, field_validator, model_validator

from cost_model.plans import MOST_ELEMENTS, Bools, Ints, Plan, Software
from cost_model.specs.frozen import LEAST, MOST, Frozen
from planner.request.pointers import did_you_mean

Objective = Literal[
    "throughput",
    "cost",
    "latency",
    "fewest_gpus",
    "largest_micro_batch",
    "largest_sequence",
    "pareto",
]

INT_COLUMNS = tuple(name for name, f in Plan.model_fields.items() if f.annotation is int)


_Bound = Annotated[int, Field(ge=-1, le=MOST_ELEMENTS)]
"""The widest range that any column of a plan has."""


class Limit(Frozen):
    """Bounds of one degree, both ends included; `values` lists the only ones allowed."""

    min: _Bound | None = None
    max: _Bound | None = None
    values: tuple[_Bound, ...] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min of {self.min} is above max of {self.max}: no value is left")
        if self.values == ():
            raise ValueError("values is empty: no value is left")
        return self

    def holds(self, value: int) -> bool:
        """Whether the value lies within."""
        return (
            (self.min is None or value >= self.min)
            and (self.max is None or value <= self.max)
            and (self.values is None or value in self.values)
        )

    def mask(self, column: Ints) -> Bools:
        """The same for a column [plans]."""
        inside = np.ones(column.shape, np.bool_)
        if self.min is not None:
            inside &= column >= self.min
        if self.max is not None:
            inside &= column <= self.max
        if self.values is not None:
            inside &= np.isin(column, self.values)
        return inside

    def and_also(self, other: "Limit") -> "Limit":
        """Both limits at once; `values` may end up empty."""
        lows = [v for v in (self.min, other.min) if v is not None]
        highs = [v for v in (self.max, other.max) if v is not None]
        lists = [set(v) for v in (self.values, other.values) if v is not None]
        return Limit.model_construct(
            min=max(lows, default=None),
            max=min(highs, default=None),
            values=tuple(sorted(set.intersection(*lists))) if lists else None,
        )


class Allow(Frozen):
    """Techniques that the search may use. What is off is held at its neutral value."""

    tp: bool = True
    tp_across_nodes: bool = False
    """Tensor parallelism wider than a node: legal, and slow on every known network."""
    sequence_parallel: bool = True
    pp: bool = True
    vpp: bool = True
    sp: bool = True
    cp: bool = True
    ep: bool = True
    zero: bool = True
    hpz: bool = True
    """ZeRO++'s secondary partition within a node: exact, costs memory."""
    compression: bool = False
    """ZeRO++'s quantised weights and gradients, and 16-bit traffic of fp32 gradients: off by
    default, since they change the numbers."""
    offload: bool = True
    """States in host RAM."""
    nvme: bool = True
    """States on NVMe, where the nodes have it."""
    recompute: bool = True
    chunked_loss: bool = True
    compile: bool = False
    """torch.compile: off by default, since not every model compiles."""
    uneven_stages: bool = True
    """Pipelines whose first and last stage hold other numbers of layers than the rest."""
    token_dropping: bool = False
    """Capacity factors for experts: off by default, since tokens over the capacity are not
    trained on."""
    fewer_nodes: bool = True
    """Plans that leave nodes idle."""


class SearchOptions(Frozen):
    """How to search."""

    objective: Objective = "throughput"
    deadline_days: float | None = Field(default=None, ge=LEAST, le=MOST)
    """For fewest_gpus: days in which `training.tokens` must be done."""
    limits: dict[str, Limit] = Field(default_factory=dict)
    """Bounds by column of a plan, such as {"tp": {"max": 8}}."""
    fixed: dict[str, Any] = Field(default_factory=dict)
    """Values by column of a plan, such as {"pp": 1, "zero_stage": 3}."""
    allow: Allow = Allow()
    software: tuple[Software, ...] = (
        Software.DEEPSPEED,
        Software.DEEPSPEED_PIPELINE,
        Software.MEGATRON_DEEPSPEED,
    )
    keep: int = Field(default=50, ge=1, le=10_000)
    """Ranked plans to keep; `pareto` keeps its whole front, as a part would hide trades."""
    headroom_gib: float = Field(default=0.0, ge=0, le=MOST)
    """GPU memory that must stay free on the worst rank."""
    min_fits_probability: float = Field(default=0.8, ge=0, le=1)
    """Plans less likely to fit than this are left out."""
    rank_by: Literal["prediction", "expected"] = "prediction"
    """expected divides the step time by the probability of fitting; prediction ignores the risk."""
    around: Plan | None = None
    """The user's own plan: it is scored, and the cheapest changes that improve it are listed."""
    what_if: bool = False
    """Also answer for one more node, half the bandwidth, twice the sequence."""

    @field_validator("software", mode="before")
    @classmethod
    def _software(cls, value: object) -> object:
        names = [value] if isinstance(value, str | int) else value
        if not isinstance(names, list | tuple):
            return value
        if not names:
            raise ValueError("software is empty: name at least one, such as 'deepspeed'")
        return tuple(Software.parse(name) for name in names)

    @field_serializer("software")
    def _software_names(self, value: tuple[Software, ...]) -> list[str]:
        return [s.name.lower() for s in value]

    @field_validator("limits")
    @classmethod
    def _limit_names(cls, value: dict[str, Limit]) -> dict[str, Limit]:
        for name in value:
            if name not in INT_COLUMNS:
                raise ValueError(f"{name!r} cannot be limited; {did_you_mean(name, INT_COLUMNS)}")
        return value

    @field_validator("fixed")
    @classmethod
    def _fixed_values(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name not in Plan.model_fields:
                hint = did_you_mean(name, Plan.model_fields)
                raise ValueError(f"{name!r} is no part of a plan; {hint}")
        plan = Plan(**value)
        return {name: getattr(plan, name) for name in value}

    @field_serializer("fixed")
    def _fixed_json(self, value: dict[str, Any]) -> dict[str, Any]:
        return Plan(**value).model_dump(include=set(value), mode="json")
