"""What a study varies: the whole space of plans, or continuous knobs around one plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cost_model.plans import Plan
from planner.request.request import Resolved
from planner.space import axes, software_allowed
from planner.space.axes import PLACEMENT, SPLIT

if TYPE_CHECKING:
    import optuna


class Knobs(Protocol):
    """Turns an Optuna trial into a plan, and a plan back into parameters."""

    def suggest(self, trial: "optuna.Trial") -> Plan:
        """Asks the trial for every parameter."""
        ...

    def parameters(self, plan: Plan) -> dict[str, Any] | None:
        """What `suggest` would have to draw for this plan; None where it cannot."""
        ...


class WholeSpace:
    """Every axis of every software of a request.

    The software is drawn first; the axes of each have names of their own (`deepspeed.tp`), since
    the choices of a parameter may not change from trial to trial. The nodes are drawn, and dp and
    grad_accum follow from the world size and the batch: drawn apart, hardly any draw would be
    legal.
    """

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.choices: dict[str, dict[str, list[Any]]] = {}
        self.fixed: dict[str, dict[str, Any]] = {}
        for software in software_allowed(resolved.search):
            spec = axes(resolved.world, resolved.search, software)
            drawn = [a for a in spec.values if a not in {"dp", SPLIT, PLACEMENT}]
            values = {axis: spec.values[axis].tolist() for axis in drawn}
            limit = spec.bounds.get("nodes")
            counts = range(1, resolved.cluster.nodes + 1)
            values["nodes"] = [n for n in counts if limit is None or limit.holds(n)]
            name = software.name.lower()
            self.choices[name] = values
            self.fixed[name] = dict(spec.fixed)

    def suggest(self, trial: "optuna.Trial") -> Plan:
        """One value of every axis; dp and accumulation follow."""
        name = str(trial.suggest_categorical("software", list(self.choices)))
        knobs = {
            axis: trial.suggest_categorical(f"{name}.{axis}", values)
            if len(values) > 1
            else values[0]
            for axis, values in self.choices[name].items()
        }
        gpus = knobs["nodes"] * self.resolved.cluster.node.gpus_per_node
        dp = max(1, gpus // (knobs["tp"] * knobs["pp"] * knobs["sp"] * knobs["cp"]))
        batch = self.resolved.training.global_batch
        accumulation = max(1, batch // (knobs["micro_batch"] * dp))
        return Plan(
            **{"software": name, "dp": dp, "grad_accum": accumulation} | self.fixed[name] | knobs
        )

    def parameters(self, plan: Plan) -> dict[str, Any] | None:
        """None for a plan with values off the axes."""
        name = plan.software.name.lower()
        if name not in self.choices or self._off_axes(name, plan):
            return None
        drawn: dict[str, Any] = {"software": name}
        for axis, values in self.choices[name].items():
            value = getattr(plan, axis)
            value = value if isinstance(value, float) else int(value)
            if value not in values:
                return None
            if len(values) > 1:
                drawn[f"{name}.{axis}"] = value
        return drawn

    def _off_axes(self, name: str, plan: Plan) -> bool:
        """Whether the plan has a value that no trial draws, such as some layers recomputed."""
        free = {*self.choices[name], "software", "dp", "grad_accum"}
        expected = Plan(**self.fixed[name])
        others = set(Plan.model_fields) - free
        return any(getattr(plan, other) != getattr(expected, other) for other in others)


@dataclass(frozen=True)
class Range:
    """Bounds of a number, both included."""

    low: float
    high: float
    log: bool = False


CONTINUOUS: Mapping[str, Range] = {
    "reduce_bucket": Range(1e6, 2e9, log=True),
    "allgather_bucket": Range(1e6, 2e9, log=True),
    "prefetch_bucket": Range(1e6, 1e9, log=True),
    "max_live_params": Range(1e8, 4e9, log=True),
    "persistence_threshold": Range(1e3, 1e7, log=True),
    "offload_ratio": Range(0.0, 1.0),
    "capacity_factor": Range(1.0, 4.0),
}
"""Knobs that no axis enumerates, with the range worth trying."""


class AroundPlan:
    """Some continuous knobs of one plan; everything else stays."""

    def __init__(self, plan: Plan, ranges: Mapping[str, Range]) -> None:
        unknown = set(ranges) - set(Plan.model_fields)
        if unknown:
            raise ValueError(f"no such knob: {', '.join(sorted(unknown))}")
        self.plan = plan
        self.ranges = ranges

    def suggest(self, trial: "optuna.Trial") -> Plan:
        """The plan with every ranged knob drawn."""
        drawn: dict[str, float] = {}
        for name, bounds in self.ranges.items():
            if Plan.model_fields[name].annotation is int:
                low, high = int(bounds.low), int(bounds.high)
                drawn[name] = trial.suggest_int(name, low, high, log=bounds.log)
            else:
                drawn[name] = trial.suggest_float(name, bounds.low, bounds.high, log=bounds.log)
        return self.plan.model_copy(update=drawn)

    def parameters(self, plan: Plan) -> dict[str, Any] | None:
        """The ranged knobs of a plan that is otherwise the same."""
        drawn = {name: getattr(plan, name) for name in self.ranges}
        return drawn if plan.model_copy(update=drawn) == plan else None
