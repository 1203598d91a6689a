"""How the stages of a pipeline lie on groups of different nodes, as one column of a table.

Stages are laid on the groups in their order, so a stage never has ranks of two groups: software
numbers ranks stage by stage, and fills the hosts of its list in turn (runtime/pipe/topology.py,
PipeDataParallelTopology; Megatron megatron/core/parallel_state.py, order tp-cp-ep-dp-pp).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic_core import core_schema

Ints = npt.NDArray[np.int64]

_STAGE_BITS, _LAYER_BITS = 9, 11
_BITS = _STAGE_BITS + _LAYER_BITS
MOST_STAGES, MOST_LAYERS = 2**_STAGE_BITS - 1, 2**_LAYER_BITS - 1
MOST_PLACED = 3
"""Groups that one integer holds; the last group takes what these leave."""

_PART = re.compile(r"(\d+)x(\d+)")


class Placement(int):
    """Stages and layers on each group of nodes but the last, which takes the rest.

    In JSON it is a text such as "4x40": the first group has 4 stages with 40 layers together; with
    three groups "4x40+2x20". Empty where all nodes count as equal. In a column it is an integer.
    """

    @classmethod
    def of(cls, parts: Iterable[tuple[int, int]]) -> "Placement":
        """From (stages, layers) of every group but the last; ValueError where one does not fit."""
        value = 0
        for number, (stages, layers) in enumerate(parts):
            if number == MOST_PLACED:
                raise ValueError(f"more than {MOST_PLACED + 1} groups")
            if not (0 < stages <= MOST_STAGES and stages <= layers <= MOST_LAYERS):
                raise ValueError(
                    f"{stages} stages with {layers} layers: give 1 to {MOST_STAGES} stages with at "
                    f"least a layer each, at most {MOST_LAYERS}"
                )
            value |= (stages | layers << _STAGE_BITS) << number * _BITS
        return cls(value)

    @classmethod
    def parse(cls, value: object) -> "Placement":
        """From its text or its number."""
        if isinstance(value, str):
            parts = [_PART.fullmatch(part) for part in value.split("+")] if value else []
            if any(part is None for part in parts):
                raise ValueError(
                    f"must be stages x layers of each group of nodes but the last, such as "
                    f"'4x40'; got {value!r}"
                )
            return cls.of((int(p[1]), int(p[2])) for p in parts if p is not None)
        if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0:
            return cls.of(Placement(int(value)).parts)
        raise ValueError(f"must be a text such as '4x40'; got {value!r}")

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """(stages, layers) of every group but the last."""
        found, rest = [], int(self)
        while rest > 0:
            found.append((rest & MOST_STAGES, rest >> _STAGE_BITS & MOST_LAYERS))
            rest >>= _BITS
        return tuple(found)

    def groups(self, pp: int, layers: int) -> tuple[tuple[int, int], ...]:
        """(stages, layers) of every group of a pipeline, the last one included."""
        parts = self.parts
        rest = (pp - sum(s for s, _ in parts), layers - sum(n for _, n in parts))
        return (*parts, rest)

    def __str__(self) -> str:
        return "+".join(f"{stages}x{layers}" for stages, layers in self.parts)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(
                str, return_schema=core_schema.str_schema(), when_used="json-unless-none"
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {
            "type": "string",
            "pattern": r"^(\d+x\d+(\+\d+x\d+){0,2})?$",
            "examples": ["", "4x40"],
        }


@dataclass(frozen=True)
class Placed:
    """Columns of placements, by group [plans]."""

    stages: tuple[Ints, ...]
    layers: tuple[Ints, ...]

    @classmethod
    def of(cls, placement: Ints, pp: Ints, layers: int, groups: int) -> "Placed":
        """Stages and layers on each of so many groups; a placement over fewer leaves the rest to
        the group after its own, and none to those behind."""
        stages, held = [], []
        rest_stages, rest_layers = pp.copy(), np.full(len(pp), layers)
        for number in range(groups):
            part = placement >> number * _BITS if number < MOST_PLACED else np.zeros_like(pp)
            given = part > 0
            stages.append(np.where(given, part & MOST_STAGES, rest_stages))
            held.append(np.where(given, part >> _STAGE_BITS & MOST_LAYERS, rest_layers))
            rest_stages = rest_stages - stages[-1]
            rest_layers = rest_layers - held[-1]
        return cls(tuple(stages), tuple(held))
