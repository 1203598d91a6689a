"""What a legality rule is."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from cost_model.calibration import Coefficients
from cost_model.calibration.memory import MemoryCoefficients
from cost_model.plans import Bools, Plan, PlanTable
from cost_model.specs import Attention, ClusterSpec, ModelSpec, TrainingSpec


@dataclass(frozen=True)
class World:
    """What a plan is judged against, with the sizes that rules divide."""

    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    coefficients: Coefficients | None = None
    """Of step time, where trials on this cluster have calibrated them; None takes the shipped."""
    memory_coefficients: MemoryCoefficients | None = None
    """The same of memory."""

    @cached_property
    def attentions(self) -> tuple[Attention, ...]:
        """Every kind of attention of the model."""
        return tuple(
            a for k in self.model.kinds for a in (k.attention, k.cross_attention) if a is not None
        )

    @cached_property
    def heads(self) -> tuple[int, ...]:
        """Distinct head counts."""
        return tuple(sorted({a.heads for a in self.attentions}))

    @cached_property
    def kv_heads(self) -> tuple[int, ...]:
        """Distinct key-value head counts."""
        return tuple(sorted({a.kv_heads for a in self.attentions}))

    @cached_property
    def ffn_widths(self) -> tuple[int, ...]:
        """Distinct widths of dense feed-forward layers and of single experts."""
        widths = {k.mlp.intermediate for k in self.model.kinds if k.mlp is not None}
        for kind in self.model.kinds:
            if kind.moe is not None:
                widths |= {kind.moe.intermediate, kind.moe.shared_intermediate} - {0}
        return tuple(sorted(widths))

    @cached_property
    def experts(self) -> tuple[int, ...]:
        """Distinct numbers of experts."""
        return tuple(sorted({k.moe.experts for k in self.model.kinds if k.moe is not None}))

    @property
    def sixteen_bit(self) -> bool:
        """Whether weights are held in 16 bits."""
        return self.training.precision != "fp32"


Kind = Literal["refused", "silent", "planner"]
"""refused: the engine raises. silent: it accepts, and trains something else or ignores the knob.
planner: it would run, but the plan is a duplicate of another or outside what is modelled."""


@dataclass(frozen=True)
class Rule:
    """One rule, once: the search masks with it, a check reports it, the docs table prints it."""

    name: str
    kind: Kind
    says: str
    """One sentence for the docs."""
    reads: tuple[str, ...]
    """Columns of the plan that decide it."""
    legal: Callable[[World, PlanTable], Bools]
    """True where the plan keeps the rule [plans]."""
    message: Callable[[World, Plan], str]
    """What is wrong with one plan that breaks it, with its numbers, and what would do."""
    enforced_at: str
    """Where DeepSpeed 0.19.8 or other software enforces it, or why the planner does."""


@dataclass(frozen=True)
class Violation:
    """One rule that one plan breaks."""

    rule: str
    kind: Kind
    message: str
    enforced_at: str
    columns: tuple[str, ...]
