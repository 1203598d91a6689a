"""How evenly the experts of a mixture are used, and how much each knows its own tokens."""

import math
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from trials.entropy.routers import Routing
from trials.result import ExpertLoad

__all__ = ["ExpertLoad", "LoadTally", "expert_load", "mean_load", "mutual_information"]


def expert_load(index: Tensor, experts: int, capacity: int | None = None) -> ExpertLoad:
    """Load of experts chosen by index [tokens, k]; capacity: routes that one expert takes."""
    demand = torch.bincount(index.flatten(), minlength=experts).double()
    kept = demand.sum() if capacity is None else demand.clamp_max(capacity).sum()
    return _statistics(demand, float(kept), None)


def _statistics(demand: Tensor, kept: float, joint: Tensor | None) -> ExpertLoad:
    routes, mean = float(demand.sum()), float(demand.mean())
    return ExpertLoad(
        cv=float(demand.std(unbiased=False)) / mean if mean else 0.0,
        max_over_mean=float(demand.max()) / mean if mean else 1.0,
        dropped=1.0 - kept / routes if routes else 0.0,
        specialisation=None if joint is None else _specialisation(joint),
    )


def mutual_information(joint: Tensor) -> float:
    """Of two variables with these joint counts [classes, experts], in nats.

    The plug-in estimate (Cover and Thomas, Elements of Information Theory, equation 2.28), which
    is too high by about (classes - 1)(experts - 1) / (2 counts).
    """
    p = joint.double() / joint.sum().clamp_min(1)
    apart = p.sum(1, keepdim=True) * p.sum(0, keepdim=True)
    seen = p > 0
    return float((p[seen] * (p[seen] / apart[seen]).log()).sum())


def _specialisation(joint: Tensor) -> float:
    """Mutual information over the entropy of the classes: 1 where the expert tells the class."""
    p = joint.double().sum(1)
    p = p[p > 0] / p.sum()
    most = min(float(-(p * p.log()).sum()), math.log(joint.shape[1]))
    return mutual_information(joint) / most if most > 0 else 0.0


@dataclass
class LoadTally:
    """Counts routes of one layer until they are taken; nothing waits for the device."""

    experts: int
    classes: int = 0
    demand: Tensor | None = None
    kept: Tensor | None = None
    joint: Tensor | None = field(default=None)

    def add(self, routing: Routing, classes: Tensor | None = None) -> None:
        """Counts one pass; classes: of each token [tokens], where they are known."""
        index = routing.index.detach()
        used = index >= 0
        places = index.clamp_min(0).flatten()
        kept = _counts(places, used.flatten(), self.experts)
        demand = kept if routing.demand is None else routing.demand.detach().double()
        self.demand = demand if self.demand is None else self.demand + demand
        self.kept = kept if self.kept is None else self.kept + kept
        if classes is not None and self.classes:
            cell = classes.flatten().unsqueeze(1) * self.experts + index.clamp_min(0)
            joint = _counts(cell.flatten(), used.flatten(), self.classes * self.experts)
            joint = joint.view(self.classes, self.experts)
            self.joint = joint if self.joint is None else self.joint + joint

    def take(self, group: dist.ProcessGroup | None = None) -> ExpertLoad:
        """The load since the last call, over all ranks of the group where one is given."""
        if self.demand is None or self.kept is None:
            raise ValueError("no router has run since the last call")
        parts = [self.demand, self.kept] + ([] if self.joint is None else [self.joint])
        if group is not None:
            for part in parts:
                dist.all_reduce(part, group=group)
        found = _statistics(self.demand, float(self.kept.sum()), self.joint)
        self.demand = self.kept = self.joint = None
        return found


def _counts(places: Tensor, used: Tensor, length: int) -> Tensor:
    counts = torch.zeros(length, dtype=torch.float64, device=places.device)
    return counts.scatter_add_(0, places, used.double())


def mean_load(loads: list[ExpertLoad]) -> ExpertLoad:
    """Mean over layers."""
    known = [x.specialisation for x in loads if x.specialisation is not None]
    count = len(loads)
    return ExpertLoad(
        cv=sum(x.cv for x in loads) / count,
        max_over_mean=sum(x.max_over_mean for x in loads) / count,
        dropped=sum(x.dropped for x in loads) / count,
        specialisation=sum(known) / len(known) if known else None,
    )
