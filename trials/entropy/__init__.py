"""The load of a mixture's experts: an entropy bonus on its routers, and the search for its weight.

`RouterEntropy` goes into any training loop; `search` finds its weight together with the capacity
factor.
"""

from trials.entropy.bonus import Over, RouterEntropy, router_entropy, shares_entropy
from trials.entropy.cost import StepCost
from trials.entropy.load import ExpertLoad, LoadTally, expert_load, mutual_information
from trials.entropy.proxy import Point, Proxy
from trials.entropy.search import EntropyStudy, SearchSettings, search

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
