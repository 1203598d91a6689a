"""The load of a mixture's experts: an entropy bonus on its routers, and the search for its weight.

`RouterEntropy` goes into any training loop; `search` finds its weight together with the capacity
factor.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trials.entropy.bonus import Over, RouterEntropy, router_entropy, shares_entropy
from trials.entropy.load import ExpertLoad, LoadTally, expert_load, mutual_information

if TYPE_CHECKING:
    from trials.entropy.cost import StepCost
    from trials.entropy.proxy import Point, Proxy
    from trials.entropy.study import EntropyStudy, SearchSettings, search

__all__ = [
    "EntropyStudy",
    "ExpertLoad",
    "LoadTally",
    "Over",
    "Point",
    "Proxy",
    "RouterEntropy",
    "SearchSettings",
    "StepCost",
    "expert_load",
    "mutual_information",
    "router_entropy",
    "search",
    "shares_entropy",
]

_LATER = {
    "EntropyStudy": "study",
    "Point": "proxy",
    "Proxy": "proxy",
    "SearchSettings": "study",
    "StepCost": "cost",
    "search": "study",
}
"""What imports Optuna and the cost model, which a training loop does without."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"trials.entropy.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
